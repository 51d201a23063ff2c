#include "clients/cli/exit_codes.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ponder::cli {
namespace {

TEST(ExitCodesTest, StatesAndErrorsAreAsDocumented) {
  EXPECT_EQ(exit_code_of_state("completed"), 0);
  EXPECT_EQ(exit_code_of_state("failed"), 1);
  EXPECT_EQ(exit_code_of_state("queued"), 3);
  EXPECT_EQ(exit_code_of_state("running"), 3);
  EXPECT_EQ(exit_code_of_state("incomplete"), 5);
  EXPECT_EQ(exit_code_of_state("cancelled"), 6);
  EXPECT_EQ(exit_code_of_state("interrupted"), 6);
  EXPECT_EQ(exit_code_of_state("expired"), 4);
  EXPECT_EQ(exit_code_of_state("something new"), 1);

  EXPECT_EQ(exit_code_of(ErrorCode::bad_request), 2);
  EXPECT_EQ(exit_code_of(ErrorCode::context_length_exceeded), 2);
  EXPECT_EQ(exit_code_of(ErrorCode::idempotency_mismatch), 2);
  EXPECT_EQ(exit_code_of(ErrorCode::not_terminal), 3);
  EXPECT_EQ(exit_code_of(ErrorCode::job_unknown), 4);
  EXPECT_EQ(exit_code_of(ErrorCode::gone), 4);
  EXPECT_EQ(exit_code_of(ErrorCode::unreachable), 69);
  EXPECT_EQ(exit_code_of(ErrorCode::storage), 74);
  EXPECT_EQ(exit_code_of(ErrorCode::queue_full), 75);
  EXPECT_EQ(exit_code_of(ErrorCode::loading), 75);
  EXPECT_EQ(exit_code_of(ErrorCode::cancelled), 130);
  EXPECT_EQ(exit_code_of(ErrorCode::internal), 1);
}

TEST(ExitCodesTest, OnlyTheFirstTwoStatesGoOn) {
  EXPECT_FALSE(is_final_state("queued"));
  EXPECT_FALSE(is_final_state("running"));
  for (const char* state :
       {"completed", "incomplete", "failed", "cancelled", "interrupted", "expired"})
    EXPECT_TRUE(is_final_state(state)) << state;
}

TEST(ExitCodesTest, TheWorstOfSeveralIsInTheOrder156) {
  const int order[] = {1, 5, 6, 4, 0};
  for (int a = 0; a < 5; ++a)
    for (int b = 0; b < 5; ++b)
      EXPECT_EQ(worse(order[a], order[b]), order[std::min(a, b)]) << order[a] << " " << order[b];
}

}  // namespace
}  // namespace ponder::cli
