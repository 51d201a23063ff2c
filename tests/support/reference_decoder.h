#pragma once
// The slow, obvious model of every architecture: double precision, one token after the other, one
// loop for each formula, nothing shared with the engine but the decoding of stored weights. Judges
// the engine on shapes for which no other program's logits are at hand.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/artifact/gguf.h"

namespace ponder::testing {

/// The mistakes that are easily made, to show that a comparison would notice them.
enum class Mistake {
  none,
  other_rope_pairing,
  no_rope_divisors,
  no_head_norms,
  no_renormalisation,
  no_shared_gate,
  higher_expert_wins_ties,
};

/// Logits [ids, vocab] of a sound file.
std::vector<double> reference_logits(const artifact::Gguf& file, std::span<const std::int32_t> ids,
                                     Mistake mistake = Mistake::none);

/// Logits [next.size(), vocab] that the multi-token-prediction layer gives after `ids` when it is
/// fed `next` one after the other.
std::vector<double> reference_guesses(const artifact::Gguf& file, std::span<const std::int32_t> ids,
                                      std::span<const std::int32_t> next);

}  // namespace ponder::testing
