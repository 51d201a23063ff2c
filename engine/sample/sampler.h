#pragma once
// Logits to a token. A pure function of logits, parameters, the tokens so far, seed and position:
// no state is carried, so a resumed or restarted stream samples the same tokens.
#include <cstdint>
#include <span>

namespace ponder::sample {

struct SamplerConfig {
  float temperature = 0.6f;  ///< 0: the largest logit, lowest id on a tie
  int top_k = 20;            ///< 0: all
  float top_p = 0.95f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  std::uint64_t seed = 0;
};

/// `logits` is scratch and may be changed. `history` are the tokens generated so far (penalties
/// look at them); `position` is the absolute position of the token to be chosen. Order: penalties,
/// temperature, top_k, top_p, min_p, then a counter-based random number from (seed, position).
std::int32_t sample(std::span<float> logits, const SamplerConfig& config,
                    std::span<const std::int32_t> history, std::int64_t position);

}  // namespace ponder::sample
