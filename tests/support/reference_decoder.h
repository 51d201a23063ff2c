#pragma once
// The slow, obvious model of every architecture: double precision, one token after the other, one
// loop for each formula, nothing shared with the engine but the decoding of stored weights. Judges
// the engine on shapes for which no other program's logits are at hand.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/artifact/gguf.h"

namespace ponder::testing {

/// Logits [ids, vocab] of a sound file.
std::vector<double> reference_logits(const artifact::Gguf& file, std::span<const std::int32_t> ids);

}  // namespace ponder::testing
