#pragma once
// Logits to a token. A pure function of logits, parameters, the tokens so far, seed and position:
// no state is carried, so a resumed or restarted stream samples the same tokens.
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

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
  /// Added to the logits of these ids first of all; -100 or less forbids, 100 or more forces (the
  /// likeliest one, where several are forced). Ids outside the vocabulary are ignored.
  std::vector<std::pair<std::int32_t, float>> logit_bias = {};
};

/// A token that may be chosen, and how likely, not normalised.
struct Weighted {
  std::int32_t id;
  float logit;
  double weight;
};

/// Logit bias and penalties, in place: what the functions below read. `history` are the tokens
/// generated so far.
void adjust(std::span<float> logits, const SamplerConfig& config,
            std::span<const std::int32_t> history);
/// True where adjust() looks at the history.
bool reads_history(const SamplerConfig& config);

/// What temperature, top_k, top_p and min_p leave of adjusted logits, likeliest first; never empty.
std::vector<Weighted> distribution(std::span<const float> logits, const SamplerConfig& config);
/// The same of the tokens `allowed` alone (at least one; ascending, inside the vocabulary).
std::vector<Weighted> distribution(std::span<const float> logits, const SamplerConfig& config,
                                   std::span<const std::int32_t> allowed);
/// The token at `u` (0 <= u < 1) of the weights laid end to end.
std::int32_t choose(std::span<const Weighted> tokens, double u);

/// `logits` is scratch and may be changed. `history` are the tokens generated so far (penalties
/// look at them); `position` is the absolute position of the token to be chosen. Order: bias,
/// penalties, temperature, top_k, top_p, min_p, then a counter-based random number from (seed,
/// position).
std::int32_t sample(std::span<float> logits, const SamplerConfig& config,
                    std::span<const std::int32_t> history, std::int64_t position);

/// What the model said, before any setting: the logarithms of softmax(logits), never below -9999.
class LogProbabilities {
 public:
  explicit LogProbabilities(std::span<const float> logits);
  double of(std::int32_t id) const;
  /// The `n` likeliest, best first.
  std::vector<std::pair<std::int32_t, double>> top(std::size_t n) const;

 private:
  std::vector<float> logits_;
  double log_sum_ = 0;
};

}  // namespace ponder::sample
