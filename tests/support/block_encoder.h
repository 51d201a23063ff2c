#pragma once
// Stored blocks of every quantised format from values: one simple scale for a block, then for each
// element the code whose decoded value is nearest. Far from the best encoding, but an honest one.
#include <span>
#include <string>

#include "kernels/quant/formats.h"

namespace ponder::testing {

/// values.size() must be a multiple of the format's block.
std::string encode_blocks(kernels::DType type, std::span<const float> values);

}  // namespace ponder::testing
