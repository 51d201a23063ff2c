#include "engine/sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "engine/sample/random.h"

namespace ponder::sample {
namespace {

/// Larger logit first, lower id on a tie.
bool before(const Weighted& a, const Weighted& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

constexpr float kMost = std::numeric_limits<float>::max();

float repetition_of(const SamplerConfig& config) {
  return config.repetition_penalty > 0 ? config.repetition_penalty : 1.0f;
}

/// NaN never wins, and an infinite logit is only very large: later sums stay finite.
void tame(std::span<float> logits) {
  for (float& x : logits)
    x = std::isnan(x) ? -kMost : std::clamp(x, -kMost, kMost);
}

void apply_bias(std::span<float> logits, const SamplerConfig& config) {
  constexpr float kForced = 1e6f;  // above any logit; what is forced keeps its order
  for (const auto& [id, bias] : config.logit_bias) {
    if (id < 0 || static_cast<std::size_t>(id) >= logits.size()) continue;
    float& x = logits[static_cast<std::size_t>(id)];
    x = bias <= -100 ? -kMost : std::min(x, kMost / 2) + (bias >= 100 ? kForced : bias);
  }
}

void apply_penalties(std::span<float> logits, const SamplerConfig& config,
                     std::span<const std::int32_t> history) {
  if (history.empty() || !reads_history(config)) return;
  const float repetition = repetition_of(config);
  std::vector<std::int32_t> counts(logits.size());
  for (const std::int32_t id : history)
    if (id >= 0 && static_cast<std::size_t>(id) < counts.size()) ++counts[id];
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (counts[i] == 0) continue;
    logits[i] = logits[i] > 0 ? logits[i] / repetition : logits[i] * repetition;
    logits[i] -= config.presence_penalty + config.frequency_penalty * static_cast<float>(counts[i]);
  }
}

/// Ids 0, 1, 2 ... or those of a list.
struct Everything {
  std::size_t n;
  std::size_t size() const { return n; }
  std::int32_t operator[](std::size_t i) const { return static_cast<std::int32_t>(i); }
};

/// The `k` best of `ids`, best first. Ids go upwards and only a larger logit replaces, so that
/// the lowest ids of a tie stay; one pass with a small heap, since a vocabulary is 250,000 long.
template <class Ids>
std::vector<Weighted> best(std::span<const float> logits, Ids ids, std::size_t k) {
  std::vector<Weighted> heap;  // its front is the worst one kept
  heap.reserve(k);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Weighted candidate{ids[i], logits[static_cast<std::size_t>(ids[i])], 0};
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
template <class Ids>
std::vector<Weighted> all(std::span<const float> logits, Ids ids, float temperature) {
  const double top = best(logits, ids, 1).front().logit;
  std::vector<Weighted> out;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const float logit = logits[static_cast<std::size_t>(ids[i])];
    if ((logit - top) / temperature >= -50) out.push_back({ids[i], logit, 0});
  }
  std::sort(out.begin(), out.end(), before);
  return out;
}

void set_weights(std::vector<Weighted>& candidates, float temperature) {
  const double top = candidates.front().logit;
  for (Weighted& c : candidates)
    c.weight = std::exp((static_cast<double>(c.logit) - top) / temperature);
}

double sum(std::span<const Weighted> candidates) {
  double total = 0;
  for (const Weighted& c : candidates)
    total += c.weight;
  return total;
}

/// The shortest run of best tokens that holds at least `top_p` of the weight.
void keep_top_p(std::vector<Weighted>& candidates, float top_p) {
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
void keep_min_p(std::vector<Weighted>& candidates, float min_p) {
  if (!(min_p > 0.0f)) return;
  const double least = std::min(1.0, static_cast<double>(min_p)) * candidates.front().weight;
  const auto end = std::find_if(candidates.begin() + 1, candidates.end(),
                                [&](const Weighted& c) { return c.weight < least; });
  candidates.erase(end, candidates.end());
}

template <class Ids>
std::vector<Weighted> likely(std::span<const float> logits, const SamplerConfig& config, Ids ids) {
  CHECK(ids.size() > 0);
  if (!(config.temperature > 0.0f)) {
    std::vector<Weighted> one = best(logits, ids, 1);
    one.front().weight = 1;
    return one;
  }
  const std::size_t k = config.top_k > 0 ? static_cast<std::size_t>(config.top_k) : ids.size();
  std::vector<Weighted> candidates =
      k < ids.size() ? best(logits, ids, k) : all(logits, ids, config.temperature);
  set_weights(candidates, config.temperature);
  keep_top_p(candidates, config.top_p);
  keep_min_p(candidates, config.min_p);
  return candidates;
}

}  // namespace

bool reads_history(const SamplerConfig& config) {
  return repetition_of(config) != 1.0f || config.presence_penalty != 0.0f ||
         config.frequency_penalty != 0.0f;
}

void adjust(std::span<float> logits, const SamplerConfig& config,
            std::span<const std::int32_t> history) {
  tame(logits);
  apply_bias(logits, config);
  apply_penalties(logits, config, history);
}

std::vector<Weighted> distribution(std::span<const float> logits, const SamplerConfig& config) {
  return likely(logits, config, Everything{logits.size()});
}

std::vector<Weighted> distribution(std::span<const float> logits, const SamplerConfig& config,
                                   std::span<const std::int32_t> allowed) {
  return likely(logits, config, allowed);
}

std::int32_t choose(std::span<const Weighted> tokens, double u) {
  CHECK(!tokens.empty());
  const double target = u * sum(tokens);
  double reached = 0;
  for (const Weighted& token : tokens) {
    reached += token.weight;
    if (target < reached) return token.id;
  }
  return tokens.back().id;  // rounding left the target at the very end
}

std::int32_t sample(std::span<float> logits, const SamplerConfig& config,
                    std::span<const std::int32_t> history, std::int64_t position) {
  CHECK(!logits.empty());
  adjust(logits, config, history);
  return choose(distribution(logits, config),
                uniform(config.seed, static_cast<std::uint64_t>(position)));
}

LogProbabilities::LogProbabilities(std::span<const float> logits)
    : logits_(logits.begin(), logits.end()) {
  CHECK(!logits_.empty());
  tame(logits_);
  const double top = *std::max_element(logits_.begin(), logits_.end());
  double total = 0;
  for (const float x : logits_)
    total += std::exp(x - top);
  log_sum_ = top + std::log(total);
}

double LogProbabilities::of(std::int32_t id) const {
  return std::max(-9999.0, static_cast<double>(logits_[static_cast<std::size_t>(id)]) - log_sum_);
}

std::vector<std::pair<std::int32_t, double>> LogProbabilities::top(std::size_t n) const {
  std::vector<std::pair<std::int32_t, double>> out;
  if (n == 0) return out;
  for (const Weighted& token : best(logits_, Everything{logits_.size()}, n))
    out.emplace_back(token.id, of(token.id));
  return out;
}

}  // namespace ponder::sample
