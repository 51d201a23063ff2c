// The laws of sampling, by count: what constraints must not change. What speculation must not is in
// speculation_law_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/sample/random.h"
#include "engine/sample/sampler.h"
#include "tests/unit/sample/laws.h"

namespace ponder::sample {
namespace {

using test::agreement;
using test::plain;
using test::softmax;

std::int32_t draw(std::vector<float> logits, const SamplerConfig& config, std::int64_t position) {
  return sample(logits, config, {}, position);
}

TEST(SamplingLaw, ASecondDrawAmongTheAllowedGivesTheRenormalisedLaw) {
  const std::vector<float> logits{1.0f, 0.2f, -0.5f, 0.7f, -2.0f, 1.3f};
  const std::vector<std::int32_t> allowed{1, 3, 4};
  for (const float temperature : {1.0f, 0.5f}) {
    SamplerConfig config = plain(12);
    config.temperature = temperature;
    const std::vector<Weighted> likely = distribution(logits, config);
    std::vector<Weighted> left;
    for (const Weighted& w : likely)
      if (std::find(allowed.begin(), allowed.end(), w.id) != allowed.end()) left.push_back(w);
    std::vector<std::int64_t> counts(logits.size());
    for (std::uint64_t position = 0; position < 300'000; ++position) {
      std::int32_t id = choose(likely, uniform(config.seed, position));
      if (std::find(allowed.begin(), allowed.end(), id) == allowed.end())
        id = choose(left, uniform(config.seed, position, 1));
      ++counts[static_cast<std::size_t>(id)];
    }
    std::vector<double> law(logits.size());
    double total = 0;
    for (const std::int32_t id : allowed) {
      const auto i = static_cast<std::size_t>(id);
      total += law[i] = std::exp(static_cast<double>(logits[i]) / static_cast<double>(temperature));
    }
    for (double& p : law)
      p /= total;
    EXPECT_GT(agreement(counts, law), 0.001) << temperature;
  }
}

TEST(SamplingLaw, TheTestItselfNoticesASmallDifference) {
  const std::vector<double> law{0.5, 0.3, 0.2};
  EXPECT_GT(agreement({500'300, 299'800, 199'900}, law), 0.001);
  EXPECT_LT(agreement({503'000, 298'000, 199'000}, law), 0.001);
  EXPECT_EQ(agreement({1, 1, 1}, {0.5, 0.5, 0.0}), 0);
}

TEST(Distribution, OfAListIsThatOfTheLogitsWithoutTheOthers) {
  const std::vector<float> logits{1.0f, 0.2f, -0.5f, 0.7f, -2.0f, 1.3f};
  SamplerConfig config = plain(1);
  config.top_k = 2;
  const auto some = distribution(logits, config, std::vector<std::int32_t>{1, 2, 4});
  ASSERT_EQ(some.size(), 2u);
  EXPECT_EQ(some[0].id, 1);
  EXPECT_EQ(some[1].id, 2);
  config.temperature = 0;
  EXPECT_EQ(distribution(logits, config, std::vector<std::int32_t>{2, 4}).at(0).id, 2);
}

TEST(LogitBias, ForbidsForcesAndShifts) {
  std::vector<float> logits{5.0f, 1.0f, 0.0f, -3.0f};
  SamplerConfig config = plain(1);
  config.temperature = 0;
  config.logit_bias = {{0, -100.0f}, {99, 100.0f}, {-4, 1.0f}};
  EXPECT_EQ(draw(logits, config, 0), 1);
  config.logit_bias = {{0, -5.0f}, {2, 2.0f}};
  EXPECT_EQ(draw(logits, config, 0), 2);
  config = plain(1);
  config.logit_bias = {{3, 100.0f}, {0, -100.0f}};
  for (std::int64_t position = 0; position < 100; ++position)
    EXPECT_EQ(draw(logits, config, position), 3);
}

TEST(LogProbabilities, AreTheLogarithmsOfTheRawLaw) {
  const std::vector<float> logits{1.0f, 0.2f, NAN, 3.5f, -INFINITY};
  const LogProbabilities raw(logits);
  const std::vector<double> law = softmax({1.0f, 0.2f, 3.5f});
  EXPECT_NEAR(raw.of(0), std::log(law[0]), 1e-9);
  EXPECT_NEAR(raw.of(3), std::log(law[2]), 1e-9);
  EXPECT_EQ(raw.of(2), -9999.0);
  EXPECT_EQ(raw.of(4), -9999.0);
  const auto top = raw.top(2);
  ASSERT_EQ(top.size(), 2u);
  EXPECT_EQ(top[0].first, 3);
  EXPECT_EQ(top[1].first, 0);
  EXPECT_TRUE(raw.top(0).empty());
}

}  // namespace
}  // namespace ponder::sample
