// Speed by a clock that the test moves.
#include "engine/generator/worker_speed.h"

#include <gtest/gtest.h>

namespace ponder {
namespace {

using std::chrono::milliseconds;

class SpeedWatchTest : public testing::Test {
 protected:
  /// One generation that makes `rate` tokens a second for `seconds`.
  void generate(double rate, double seconds) {
    watch_.making_tokens(now_, true);
    go_on(rate, seconds);
    watch_.making_tokens(now_, false);
  }
  void go_on(double rate, double seconds) {
    const auto end = now_ + milliseconds(static_cast<int>(seconds * 1000));
    const auto step = std::chrono::microseconds(static_cast<int>(1e6 / rate));
    for (; now_ + step <= end; watch_.tokens(now_, 1))
      now_ += step;
    now_ = end;
  }
  bool slow() const { return watch_.at(now_).slow; }

  SpeedWatch watch_;
  SpeedWatch::Time now_{milliseconds(1)};
};

TEST_F(SpeedWatchTest, NothingIsKnownAtFirst) {
  EXPECT_EQ(watch_.at(now_).usual, 0);
  EXPECT_FALSE(slow());
}

TEST_F(SpeedWatchTest, ATenthOfTheUsualIsSlowWithinTenSeconds) {
  generate(50, 20);
  EXPECT_NEAR(watch_.at(now_).usual, 50, 1);
  EXPECT_FALSE(slow());
  generate(5, 10);
  EXPECT_TRUE(slow());
  EXPECT_NEAR(watch_.at(now_).now, 5, 0.5);
  EXPECT_NEAR(watch_.at(now_).usual, 50, 1);
  generate(50, 3);
  EXPECT_FALSE(slow());
}

TEST_F(SpeedWatchTest, WithinOneGenerationToo) {
  watch_.making_tokens(now_, true);
  go_on(100, 3);
  go_on(0.4, 12);
  EXPECT_TRUE(slow());
}

TEST_F(SpeedWatchTest, ShortGenerationsAddUp) {
  for (int i = 0; i < 20; ++i)
    generate(2000, 0.02);
  EXPECT_NEAR(watch_.at(now_).usual, 2000, 200);
}

TEST_F(SpeedWatchTest, HalfSpeedIsNoFaultAndABriefStallNeither) {
  generate(50, 20);
  generate(25, 30);
  EXPECT_FALSE(slow());
  generate(50, 20);
  now_ += milliseconds(4000);
  generate(2, 4);
  EXPECT_FALSE(slow());
}

TEST_F(SpeedWatchTest, TimeInWhichAPromptIsReadDoesNotCount) {
  generate(50, 20);
  for (int i = 0; i < 30; ++i) {  // a token now and then beside a long prompt
    now_ += milliseconds(1000);
    watch_.tokens(now_, 1);
  }
  EXPECT_FALSE(slow());
}

TEST_F(SpeedWatchTest, SlowStaysSlowForMinutesAndThenIsUsual) {
  generate(50, 20);
  generate(5, 500);
  EXPECT_TRUE(slow());
  generate(5, 200);
  EXPECT_FALSE(slow());
  EXPECT_NEAR(watch_.at(now_).usual, 5, 1);
}

TEST_F(SpeedWatchTest, ANewWorkerIsNotSlowButIsHeldAgainstTheSameUsual) {
  generate(50, 20);
  generate(5, 10);
  watch_.begin_anew();
  EXPECT_FALSE(slow());
  EXPECT_NEAR(watch_.at(now_).usual, 50, 1);
  generate(5, 10);
  EXPECT_TRUE(slow());
}

}  // namespace
}  // namespace ponder
