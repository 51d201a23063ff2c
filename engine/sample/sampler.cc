#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "engine/sample/random.h"

namespace ponder::sample {
namespace {

struct Candidate {
  float logit;
  std::int32_t id;
  double weight = 0;  ///< exp((logit - largest) / temperature)
};

/// Larger logit first, lower id on a tie.
bool before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

/// NaN never wins, and an infinite logit is only very large: later sums stay finite.
void tame(std::span<float> logits) {
  constexpr float kMost = std::numeric_limits<float>::max();
  for (float& x : logits)
    x = std::isnan(x) ? -kMost : std::clamp(x, -kMost, kMost);
}

void apply_penalties(std::span<float> logits, const SamplerConfig& config,
                     std::span<const std::int32_t> history) {
  const float repetition = config.repetition_penalty > 0 ? config.repetition_penalty : 1.0f;
  if (history.empty() ||
      (repetition == 1.0f && config.presence_penalty == 0.0f && config.frequency_penalty == 0.0f))
    return;
  std::vector<std::int32_t> counts(logits.size());
  for (const std::int32_t id : history)
    if (id >= 0 && static_cast<std::size_t>(id) < counts.size()) ++counts[id];
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (counts[i] == 0) continue;
    logits[i] = logits[i] > 0 ? logits[i] / repetition : logits[i] * repetition;
    logits[i] -= config.presence_penalty + config.frequency_penalty * static_cast<float>(counts[i]);
  }
}

std::int32_t largest(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

/// The `k` best of `logits`, best first. Ids go upwards and only a larger logit replaces, so that
/// the lowest ids of a tie stay; one pass with a small heap, since a vocabulary is 250,000 long.
std::vector<Candidate> best(std::span<const float> logits, std::size_t k) {
  std::vector<Candidate> heap;  // its front is the worst one kept
  heap.reserve(k);
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const Candidate candidate{logits[i], static_cast<std::int32_t>(i)};
    if (heap.size() < k) {
      heap.push_back(candidate);
      std::push_heap(heap.begin(), heap.end(), before);
    } else if (candidate.logit > heap.front().logit) {
      std::pop_heap(heap.begin(), heap.end(), before);
      heap.back() = candidate;
      std::push_heap(heap.begin(), heap.end(), before);
    }
  }
  std::sort_heap(heap.begin(), heap.end(), before);
  return heap;
}

/// Every token whose weight a 53-bit random number can tell from zero: 250,000 tokens below e^-50
/// together weigh less than 2^-53.
std::vector<Candidate> all(std::span<const float> logits, float temperature) {
  const double top = logits[largest(logits)];
  std::vector<Candidate> out;
  for (std::size_t i = 0; i < logits.size(); ++i)
    if ((logits[i] - top) / temperature >= -50)
      out.push_back({logits[i], static_cast<std::int32_t>(i)});
  std::sort(out.begin(), out.end(), before);
  return out;
}

void set_weights(std::vector<Candidate>& candidates, float temperature) {
  const double top = candidates.front().logit;
  for (Candidate& c : candidates)
    c.weight = std::exp((static_cast<double>(c.logit) - top) / temperature);
}

double sum(const std::vector<Candidate>& candidates) {
  double total = 0;
  for (const Candidate& c : candidates)
    total += c.weight;
  return total;
}

/// The shortest run of best tokens that holds at least `top_p` of the weight.
void keep_top_p(std::vector<Candidate>& candidates, float top_p) {
  if (!(top_p < 1.0f)) return;
  const double enough = sum(candidates) * std::max(0.0f, top_p);
  double reached = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    reached += candidates[i].weight;
    if (reached >= enough) {
      candidates.resize(i + 1);
      return;
    }
  }
}

/// Tokens at least `min_p` times as likely as the best one.
void keep_min_p(std::vector<Candidate>& candidates, float min_p) {
  if (!(min_p > 0.0f)) return;
  const double least = std::min(1.0, static_cast<double>(min_p)) * candidates.front().weight;
  const auto end = std::find_if(candidates.begin() + 1, candidates.end(),
                                [&](const Candidate& c) { return c.weight < least; });
  candidates.erase(end, candidates.end());
}

}  // namespace

std::int32_t sample(std::span<float> logits, const SamplerConfig& config,
                    std::span<const std::int32_t> history, std::int64_t position) {
  CHECK(!logits.empty());
  tame(logits);
  apply_penalties(logits, config, history);
  if (!(config.temperature > 0.0f)) return largest(logits);

  const std::size_t k = config.top_k > 0 ? static_cast<std::size_t>(config.top_k) : logits.size();
  std::vector<Candidate> candidates =
      k < logits.size() ? best(logits, k) : all(logits, config.temperature);
  set_weights(candidates, config.temperature);
  keep_top_p(candidates, config.top_p);
  keep_min_p(candidates, config.min_p);

  const double target =
      uniform(config.seed, static_cast<std::uint64_t>(position)) * sum(candidates);
  double reached = 0;
  for (const Candidate& c : candidates) {
    reached += c.weight;
    if (target < reached) return c.id;
  }
  return candidates.back().id;  // rounding left the target at the very end
}

}  // namespace ponder::sample
