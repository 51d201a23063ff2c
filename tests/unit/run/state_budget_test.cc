#include "engine/run/state_budget.h"

#include <gtest/gtest.h>

namespace ponder::run {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;

TEST(StateBudget, IsAShareOfWhatIsFreeWithinBounds) {
  EXPECT_EQ(default_state_budget(0).device_bytes, 64 * kMiB);
  EXPECT_EQ(default_state_budget(0).host_bytes, 0u);
  EXPECT_EQ(default_state_budget(16 * kGiB).device_bytes, kGiB);
  EXPECT_EQ(default_state_budget(16 * kGiB).host_bytes, 2 * kGiB);
  EXPECT_EQ(default_state_budget(1000 * kGiB).device_bytes, 4 * kGiB);
  EXPECT_EQ(default_state_budget(1000 * kGiB).host_bytes, 8 * kGiB);
}

TEST(StateBudget, WhatRunsAndItsStatesLeaveRoomForTheirCopiesAndForOthers) {
  EXPECT_EQ(default_context_budget(16 * kGiB), 12 * kGiB);
  EXPECT_LT(default_context_budget(16 * kGiB) + default_state_budget(16 * kGiB).host_bytes,
            16 * kGiB);
  EXPECT_EQ(default_context_budget({}), 0u);
}

TEST(StateBudget, IsTheLeastWhereNothingIsKnown) {
  EXPECT_EQ(default_state_budget({}).device_bytes, 64 * kMiB);
  EXPECT_EQ(default_state_budget({}).host_bytes, 0u);
}

}  // namespace
}  // namespace ponder::run
