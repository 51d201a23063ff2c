// The laws of sampling, by count: what speculation and constraints must not change.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/sample/random.h"
#include "engine/sample/sampler.h"

namespace ponder::sample {
namespace {

/// The chance of a chi-square value at least this large (Wilson and Hilferty 1931).
double chi_square_tail(double x, double degrees) {
  const double spread = 2.0 / (9.0 * degrees);
  const double z = (std::cbrt(x / degrees) - (1 - spread)) / std::sqrt(spread);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

/// How well `counts` agree with draws from `law`.
double agreement(const std::vector<std::int64_t>& counts, const std::vector<double>& law) {
  double n = 0;
  for (const std::int64_t c : counts)
    n += static_cast<double>(c);
  double x = 0, cells = 0;
  for (std::size_t i = 0; i < law.size(); ++i) {
    if (law[i] == 0) {
      if (counts[i] != 0) return 0;
      continue;
    }
    const double expected = n * law[i];
    x += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) /
         expected;
    ++cells;
  }
  return chi_square_tail(x, cells - 1);
}

std::vector<double> softmax(const std::vector<float>& logits) {
  std::vector<double> law;
  double total = 0;
  for (const float x : logits)
    total += law.emplace_back(std::exp(static_cast<double>(x)));
  for (double& p : law)
    p /= total;
  return law;
}

SamplerConfig plain(std::uint64_t seed) {
  SamplerConfig config;
  config.temperature = 1;
  config.top_k = 0;
  config.top_p = 1;
  config.seed = seed;
  return config;
}

std::int32_t draw(std::vector<float> logits, const SamplerConfig& config, std::int64_t position) {
  return sample(logits, config, {}, position);
}

// The target's logits depend on the token before; the drafter's are near them.
const std::vector<std::vector<float>> kTarget{{1.0f, 0.2f, -0.5f, 0.7f, -2.0f},
                                              {-1.0f, 2.0f, 0.0f, 0.5f, 0.1f},
                                              {0.0f, 0.0f, 1.5f, -1.0f, 0.3f},
                                              {0.4f, -0.6f, 0.9f, 1.1f, -0.2f},
                                              {2.0f, 0.0f, 0.5f, 0.0f, -1.5f}};
const std::vector<std::vector<float>> kDrafter{{0.8f, 0.5f, -0.7f, 0.3f, -1.0f},
                                               {-0.5f, 1.2f, 0.4f, 0.5f, 0.6f},
                                               {0.3f, -0.2f, 1.0f, -1.2f, 0.0f},
                                               {0.1f, -0.1f, 0.5f, 1.4f, 0.2f},
                                               {1.2f, 0.4f, 0.1f, 0.3f, -1.0f}};

TEST(SamplingLaw, SpeculationTellsTheTargetsTokensAndTheirLaw) {
  // Drafts of up to three tokens by the drafter; each is kept while the target, at the same seed
  // and position, chooses it; the target's own choice replaces the first other one.
  constexpr std::int64_t kDraws = 1'000'000;
  const SamplerConfig config = plain(77);
  std::vector<std::vector<std::int64_t>> counts(5, std::vector<std::int64_t>(5));
  std::int64_t drafted = 0, accepted = 0;
  std::size_t last = 0;
  for (std::int64_t position = 0; position < kDraws;) {
    std::vector<std::size_t> drafts;
    std::size_t before = last;
    for (std::int64_t i = 0; i < 3; ++i)
      before = drafts.emplace_back(
          static_cast<std::size_t>(draw(kDrafter[before], config, position + i)));
    drafted += 3;
    for (std::size_t i = 0; i <= drafts.size(); ++i, ++position) {
      const auto token = static_cast<std::size_t>(draw(kTarget[last], config, position));
      ++counts[last][token];
      last = token;
      if (i == drafts.size() || drafts[i] != token) {
        ++position;
        break;
      }
      ++accepted;
    }
  }
  for (std::size_t i = 0; i < counts.size(); ++i)
    EXPECT_GT(agreement(counts[i], softmax(kTarget[i])), 0.001) << "after token " << i;
  // Two draws of their own would agree at one place in four, so at 0.11 of three in a row.
  EXPECT_GT(static_cast<double>(accepted), 0.3 * static_cast<double>(drafted));
}

TEST(SamplingLaw, SpeculationIsTheSameTextAsWithoutIt) {
  const SamplerConfig config = plain(3);
  std::size_t slow = 0, fast = 0;
  std::vector<std::size_t> alone, together;
  for (std::int64_t position = 0; position < 5000; ++position)
    alone.push_back(slow = static_cast<std::size_t>(draw(kTarget[slow], config, position)));
  while (together.size() < alone.size()) {
    const auto position = static_cast<std::int64_t>(together.size());
    const auto draft = static_cast<std::size_t>(draw(kDrafter[fast], config, position));
    const auto token = static_cast<std::size_t>(draw(kTarget[fast], config, position));
    together.push_back(fast = token);
    if (draft == token && together.size() < alone.size())
      together.push_back(fast =
                             static_cast<std::size_t>(draw(kTarget[fast], config, position + 1)));
  }
  EXPECT_EQ(alone, together);
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
