#include "engine/run/speculation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ponder::run {
namespace {

using Ids = std::vector<std::int32_t>;

/// A machine on which a step takes 1 and each further row `row`, a draft `draft`.
struct Machine {
  double row = 0.02, draft = 0.05;
  double step(std::int64_t rows) const { return 1 + row * static_cast<double>(rows - 1); }
};

/// Drafts right with probability `right` each; returns tokens per second over many steps.
struct Race {
  double per_second = 0;
  double mean_depth = 0;
};
Race race(int spec, double right, Machine machine, int steps = 4000) {
  std::mt19937 draw(5);
  std::uniform_real_distribution<double> chance;
  StepCost cost;
  Drafting drafting(spec, true);
  const Ids ids{1, 2, 3};
  double seconds = 0, tokens = 0, depths = 0;
  for (int i = 0; i < steps; ++i) {
    const auto plan = drafting.plan(cost, {}, kLongestLookup, ids);
    int good = 0;
    while (good < plan.depth && chance(draw) < right)
      ++good;
    const double took = machine.step(1 + plan.depth);
    cost.step_took(1 + plan.depth, took);
    for (int k = 0; k < plan.depth; ++k)
      cost.draft_took(machine.draft);
    drafting.happened(false, plan.depth, good);
    seconds += took + plan.depth * machine.draft;
    tokens += 1 + good;
    depths += plan.depth;
  }
  return {tokens / seconds, depths / steps};
}

TEST(Drafting, AFixedDepthIsKept) {
  for (int spec = 0; spec <= kDeepestDraft; ++spec)
    EXPECT_EQ(race(spec, 0.1, {}, 50).mean_depth, spec);
  StepCost cost;
  EXPECT_EQ(Drafting(5, true).plan(cost, {}, 2, Ids{1}).depth, 2);
  EXPECT_EQ(Drafting(5, false).plan(cost, {}, 9, Ids{1}).depth, 0);
  EXPECT_EQ(Drafting(kAdaptive, true).plan(cost, {}, 0, Ids{1}).depth, 0);
}

TEST(Drafting, FindsADepthNearlyAsFastAsTheBestFixedOne) {
  for (const double right : {0.95, 0.8, 0.5, 0.2, 0.0}) {
    for (const Machine machine :
         {Machine{0.01, 0.03}, Machine{0.1, 0.1}, Machine{0.5, 0.3}, Machine{0.02, 0.6}}) {
      double best = 0;
      for (int depth = 0; depth <= kDeepestDraft; ++depth)
        best = std::max(best, race(depth, right, machine).per_second);
      EXPECT_GT(race(kAdaptive, right, machine).per_second, 0.9 * best)
          << right << " " << machine.row << " " << machine.draft;
    }
  }
}

TEST(Drafting, SwitchesItselfOffWhereItDoesNotPayAndOnAgain) {
  EXPECT_LT(race(kAdaptive, 0.0, {0.2, 0.3}).mean_depth, 0.1);
  EXPECT_GT(race(kAdaptive, 0.95, {0.02, 0.05}).mean_depth, 3.5);
  // A stretch where nothing is right, then one where all is.
  StepCost cost;
  Drafting drafting(kAdaptive, true);
  const auto steps = [&](int n, bool right) {
    int last = 0;
    for (int i = 0; i < n; ++i) {
      const int depth = drafting.plan(cost, {}, 5, Ids{1}).depth;
      cost.step_took(1 + depth, 1 + 0.2 * depth);
      if (depth > 0) cost.draft_took(0.1);
      drafting.happened(false, depth, right ? depth : 0);
      last = i > n - 100 ? std::max(last, depth) : 0;
    }
    return last;
  };
  EXPECT_LE(steps(500, false), 2);
  EXPECT_GE(steps(30000, true), 3);
}

TEST(Drafting, ALookupIsUsedWhereItIsLikelyToBeRight) {
  StepCost cost;
  cost.step_took(1, 1.0);
  Drafting drafting(kAdaptive, false);
  Ids ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  EXPECT_TRUE(drafting.plan(cost, {}, 15, ids).looked_up.empty());
  for (std::int32_t i = 10; i < 18; ++i)
    ids.push_back(i);
  const auto plan = drafting.plan(cost, {}, 15, ids);
  ASSERT_FALSE(plan.looked_up.empty());
  EXPECT_EQ(plan.looked_up.front(), 18);
  EXPECT_EQ(plan.depth, 0);
  EXPECT_LE(drafting.plan(cost, {}, 2, ids).looked_up.size(), 2u);
}

TEST(Drafting, AShortMatchIsTrustedOnlyWhileItPays) {
  StepCost cost;
  cost.step_took(1, 1.0);
  Drafting drafting(kAdaptive, false);
  Ids ids(40);
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int32_t i = 20; i < 25; ++i)
    ids.push_back(i);  // five tokens alike
  EXPECT_TRUE(drafting.plan(cost, {}, 15, ids).looked_up.empty());
  drafting.happened(true, 4, 4);
  EXPECT_FALSE(drafting.plan(cost, {}, 15, ids).looked_up.empty());
  drafting.happened(true, 4, 0);
  EXPECT_TRUE(drafting.plan(cost, {}, 15, ids).looked_up.empty());
}

TEST(Drafting, WhenAStepIsFullOfOthersFewerAreDrafted) {
  StepCost cost;
  for (std::int64_t rows = 1; rows <= 40; ++rows)
    cost.step_took(rows, 1 + 0.25 * static_cast<double>(rows));  // rows are what costs
  cost.draft_took(0.2);
  Drafting drafting(kAdaptive, true);
  for (int i = 0; i < 100; ++i)
    drafting.happened(false, 3, i % 3);
  const int alone = drafting.plan(cost, {0, 0}, 5, Ids{1}).depth;
  const int beside = drafting.plan(cost, {7, 7}, 5, Ids{1}).depth;
  EXPECT_LE(beside, alone);
}

TEST(StepCost, OneSlowMeasurementIsForgottenWithTheNext) {
  StepCost cost;
  cost.draft_took(30.0);  // its weights were read from the disk
  cost.draft_took(0.1);
  EXPECT_DOUBLE_EQ(cost.draft(), 0.1);
  cost.step_took(4, 30.0);
  cost.step_took(4, 1.0);
  EXPECT_DOUBLE_EQ(cost.step(4), 1.0);
  cost.step_took(4, 0.9);  // which is no news
  EXPECT_GT(cost.step(4), 0.95);
}

TEST(Drafting, AFirstDraftThatWasSlowDoesNotEndTheDrafting) {
  StepCost cost;
  Drafting drafting(kAdaptive, true);
  int last = 0;
  for (int i = 0; i < 100; ++i) {
    last = drafting.plan(cost, {}, 5, Ids{1}).depth;
    cost.step_took(1 + last, 1 + 0.05 * last);
    if (last > 0) cost.draft_took(i == 0 ? 100.0 : 0.05);
    drafting.happened(false, last, last);
  }
  EXPECT_GE(last, 3);
}

TEST(StepCost, BetweenMeasurementsItIsALineAndBeyondThemHopeful) {
  StepCost cost;
  EXPECT_GT(cost.step(1), 0);
  cost.step_took(2, 2.0);
  EXPECT_EQ(cost.step(1), 1.0);
  EXPECT_EQ(cost.step(2), 2.0);
  EXPECT_GT(cost.step(3), 2.0);
  EXPECT_LT(cost.step(3), 2.2);
  cost.step_took(6, 4.0);
  EXPECT_DOUBLE_EQ(cost.step(4), 3.0);
  cost.step_took(6, 400.0);  // one slow step is no new speed
  EXPECT_LT(cost.step(6), 5.0);
  for (int i = 0; i < 60; ++i)
    cost.step_took(6, 8.0);
  EXPECT_NEAR(cost.step(6), 8.0, 0.01);
  EXPECT_GT(cost.step(100000), 0);
}

}  // namespace
}  // namespace ponder::run
