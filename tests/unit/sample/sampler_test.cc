#include "engine/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "engine/sample/random.h"

namespace ponder::sample {
namespace {

/// Draws at positions 0..n-1 and counts the ids.
std::map<std::int32_t, int> draw(const std::vector<float>& logits, const SamplerConfig& config,
                                 int n, const std::vector<std::int32_t>& history = {}) {
  std::map<std::int32_t, int> counts;
  for (int position = 0; position < n; ++position) {
    std::vector<float> scratch = logits;
    ++counts[sample(scratch, config, history, position)];
  }
  return counts;
}

SamplerConfig plain(float temperature = 1.0f, std::uint64_t seed = 11) {
  return {.temperature = temperature,
          .top_k = 0,
          .top_p = 1.0f,
          .min_p = 0.0f,
          .repetition_penalty = 1.0f,
          .presence_penalty = 0.0f,
          .frequency_penalty = 0.0f,
          .seed = seed};
}

/// Chi-square of `counts` against probabilities that sum to one.
double chi_square(const std::map<std::int32_t, int>& counts, const std::vector<double>& expected,
                  int n) {
  double total = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto found = counts.find(static_cast<std::int32_t>(i));
    const double seen = found == counts.end() ? 0 : found->second;
    if (expected[i] == 0) {
      EXPECT_EQ(seen, 0) << "id " << i << " has no probability";
      continue;
    }
    total += (seen - n * expected[i]) * (seen - n * expected[i]) / (n * expected[i]);
  }
  return total;
}

std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double sum = 0;
  for (const float x : logits)
    sum += p.emplace_back(std::exp(x / temperature));
  for (double& x : p)
    x /= sum;
  return p;
}

constexpr int kDraws = 20000;
// 99.9 % points of chi-square with 7 and 2 degrees of freedom
constexpr double kLimit7 = 24.32;
constexpr double kLimit2 = 13.82;
const std::vector<float> kLogits = {1.0f, 0.2f, -0.5f, 2.0f, 0.0f, 1.5f, -1.0f, 0.7f};

TEST(Sampler, DrawsFromTheSoftmax) {
  for (const float temperature : {0.5f, 1.0f, 1.7f})
    EXPECT_LT(chi_square(draw(kLogits, plain(temperature), kDraws), softmax(kLogits, temperature),
                         kDraws),
              kLimit7)
        << temperature;
}

TEST(Sampler, ChiSquareRejectsAnotherTemperature) {
  // shows that the bound above can fail
  EXPECT_GT(chi_square(draw(kLogits, plain(1.2f), kDraws), softmax(kLogits, 1.0), kDraws), kLimit7);
}

TEST(Sampler, TopKKeepsTheKBestAndTheirProportions) {
  SamplerConfig config = plain();
  config.top_k = 3;
  std::vector<float> masked = kLogits;
  for (std::size_t i = 0; i < masked.size(); ++i)
    if (i != 0 && i != 3 && i != 5) masked[i] = -INFINITY;
  EXPECT_LT(chi_square(draw(kLogits, config, kDraws), softmax(masked, 1.0), kDraws), kLimit2);
}

TEST(Sampler, TopPKeepsTheShortestRunThatReachesIt) {
  // probabilities 0.5, 0.25, 0.15, 0.1
  const std::vector<float> logits = {std::log(0.25f), std::log(0.5f), std::log(0.1f),
                                     std::log(0.15f)};
  SamplerConfig config = plain();
  config.top_p = 0.7f;
  auto counts = draw(logits, config, 2000);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.count(0) && counts.count(1));
  config.top_p = 0.8f;
  EXPECT_EQ(draw(logits, config, 2000).size(), 3u);
  config.top_p = 0.0f;  // never empty
  EXPECT_EQ(draw(logits, config, 100).size(), 1u);
}

TEST(Sampler, MinPIsMeasuredAgainstTheBest) {
  const std::vector<float> logits = {std::log(0.25f), std::log(0.5f), std::log(0.1f),
                                     std::log(0.15f)};
  SamplerConfig config = plain();
  config.min_p = 0.4f;
  EXPECT_EQ(draw(logits, config, 2000).size(), 2u);
  config.min_p = 0.25f;
  EXPECT_EQ(draw(logits, config, 2000).size(), 3u);
}

TEST(Sampler, TemperatureComesBeforeTopP) {
  // at temperature 1 the best token alone holds 0.7; at 2 it holds 0.54, so that a second one stays
  const std::vector<float> logits = {std::log(0.7f), std::log(0.2f), std::log(0.1f)};
  SamplerConfig config = plain(1.0f);
  config.top_p = 0.6f;
  EXPECT_EQ(draw(logits, config, 500).size(), 1u);
  config.temperature = 2.0f;
  EXPECT_EQ(draw(logits, config, 500).size(), 2u);
}

TEST(Sampler, TopKComesBeforeTopP) {
  // of all: 0.4, 0.3, 0.2, 0.1, so 0.5 needs two; of the best two alone 0.57 is reached by one
  const std::vector<float> logits = {std::log(0.4f), std::log(0.3f), std::log(0.2f),
                                     std::log(0.1f)};
  SamplerConfig config = plain();
  config.top_p = 0.5f;
  EXPECT_EQ(draw(logits, config, 500).size(), 2u);
  config.top_k = 2;
  EXPECT_EQ(draw(logits, config, 500).size(), 1u);
}

TEST(Sampler, PenaltiesComeBeforeTopK) {
  SamplerConfig config = plain();
  config.top_k = 1;
  EXPECT_EQ(draw(kLogits, config, 10).begin()->first, 3);
  config.presence_penalty = 10;
  EXPECT_EQ(draw(kLogits, config, 10, {3}).begin()->first, 5);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  SamplerConfig greedy = plain(0.0f);
  greedy.repetition_penalty = 2.0f;
  std::vector<float> a = {4.0f, 2.5f, -1.0f};
  EXPECT_EQ(sample(a, greedy, std::vector<std::int32_t>{0, 2}, 0), 1);
  EXPECT_FLOAT_EQ(a[0], 2.0f);   // positive: divided
  EXPECT_FLOAT_EQ(a[2], -2.0f);  // negative: multiplied
  EXPECT_FLOAT_EQ(a[1], 2.5f);   // not in the history
  SamplerConfig frequency = plain(0.0f);
  frequency.frequency_penalty = 0.5f;
  frequency.presence_penalty = 0.25f;
  std::vector<float> b = {4.0f, 2.5f};
  sample(b, frequency, std::vector<std::int32_t>{0, 0, 0}, 0);
  EXPECT_FLOAT_EQ(b[0], 4.0f - 0.25f - 1.5f);
  std::vector<float> c = {4.0f, 2.5f};  // ids outside the vocabulary are not indexed
  sample(c, frequency, std::vector<std::int32_t>{-1, 2, 1 << 30}, 0);
  EXPECT_FLOAT_EQ(c[0], 4.0f);
}

TEST(Sampler, ZeroTemperatureTakesTheLowestIdOfATie) {
  std::vector<float> logits = {1.0f, 3.0f, 3.0f, 2.0f, 3.0f};
  EXPECT_EQ(sample(logits, plain(0.0f), {}, 7), 1);
}

TEST(Sampler, TopKTakesTheLowestIdsOfATie) {
  const std::vector<float> logits = {0.0f, 1.0f, 1.0f, 1.0f, 1.0f};
  SamplerConfig config = plain();
  config.top_k = 2;
  const auto counts = draw(logits, config, 500);
  EXPECT_EQ(counts.size(), 2u);
  EXPECT_TRUE(counts.count(1) && counts.count(2));
}

TEST(Sampler, IsAFunctionOfSeedAndPositionAlone) {
  std::vector<std::int32_t> first, second, other;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> a = kLogits, c = kLogits;
    first.push_back(sample(a, plain(1.0f, 5), {}, i));
    other.push_back(sample(c, plain(1.0f, 6), {}, i));
  }
  for (int i = 199; i >= 0; --i) {  // another order, the same tokens
    std::vector<float> a = kLogits;
    second.insert(second.begin(), sample(a, plain(1.0f, 5), {}, i));
  }
  EXPECT_EQ(first, second);
  EXPECT_NE(first, other);
}

TEST(Sampler, SurvivesNanAndInfinity) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> a = {nan, 1.0f, nan};
  EXPECT_EQ(sample(a, plain(0.0f), {}, 0), 1);
  for (const float temperature : {0.0f, 1e-30f, 1.0f, 1e30f}) {
    for (const std::vector<float>& logits :
         {std::vector<float>{nan, nan}, std::vector<float>{-INFINITY, -INFINITY},
          std::vector<float>{INFINITY, nan}, std::vector<float>{INFINITY, INFINITY}}) {
      for (int position = 0; position < 20; ++position) {
        std::vector<float> b = logits;
        SamplerConfig config = plain(temperature);
        config.frequency_penalty = 1.0f;
        const std::int32_t id = sample(b, config, std::vector<std::int32_t>{0, 1}, position);
        EXPECT_GE(id, 0);
        EXPECT_LT(id, 2);
      }
    }
  }
  std::vector<float> c = {nan, 1.0f, 0.5f};
  for (int position = 0; position < 200; ++position) {
    std::vector<float> scratch = c;
    EXPECT_NE(sample(scratch, plain(), {}, position), 0);
  }
}

TEST(Sampler, SmallTopKAgreesWithSortingEverything) {
  // the slow reference: the whole vocabulary sorted, cut at k
  std::vector<float> logits(5000);
  for (std::size_t i = 0; i < logits.size(); ++i)
    logits[i] = std::floor(static_cast<float>(uniform(3, i)) * 64) / 8;  // many ties
  std::vector<std::int32_t> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = static_cast<std::int32_t>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return logits[a] > logits[b]; });
  const std::set<std::int32_t> expected(order.begin(), order.begin() + 20);
  SamplerConfig config = plain(50.0f);
  config.top_k = 20;
  std::set<std::int32_t> seen;
  for (const auto& [id, count] : draw(logits, config, 2000))
    seen.insert(id);
  EXPECT_EQ(seen, expected);
}

TEST(Uniform, FillsTheUnitIntervalEvenly) {
  for (const bool by_seed : {false, true}) {
    std::map<std::int32_t, int> bins;
    for (std::uint64_t i = 0; i < kDraws; ++i) {
      const double u = by_seed ? uniform(i, 3) : uniform(3, i);
      ASSERT_GE(u, 0.0);
      ASSERT_LT(u, 1.0);
      ++bins[static_cast<std::int32_t>(u * 8)];
    }
    EXPECT_LT(chi_square(bins, std::vector<double>(8, 0.125), kDraws), kLimit7);
  }
}

TEST(Uniform, NeighboursDoNotFollowEachOther) {
  // pairs (u_i, u_i+1) fall evenly on a 3x3 board: chi-square, 8 degrees of freedom, 99.9 %
  std::map<std::int32_t, int> bins;
  for (std::uint64_t i = 0; i < kDraws; ++i)
    ++bins[static_cast<std::int32_t>(uniform(9, i) * 3) * 3 +
           static_cast<std::int32_t>(uniform(9, i + 1) * 3)];
  EXPECT_LT(chi_square(bins, std::vector<double>(9, 1.0 / 9), kDraws), 26.12);
}

}  // namespace
}  // namespace ponder::sample
