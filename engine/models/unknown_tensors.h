#pragma once
// Tensors of a file's layers that no slot asks for. A model that has one computes something this
// build does not know of, so that its numbers would be wrong without a word.
#include <string>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/models/weight_slots.h"

namespace ponder::models {

/// A sentence about the first of them, or nothing. Tensors outside of blk.* (a vision tower kept in
/// the same file) and activation scales, which only other kernels need, are nobody's business.
std::vector<std::string> unknown_tensors(const artifact::Gguf& file,
                                         const std::vector<WeightSlot>& slots);

}  // namespace ponder::models
