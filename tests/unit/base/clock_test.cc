#include "engine/base/clock.h"

#include <gtest/gtest.h>

namespace ponder {
TEST(Clock, Rfc3339IsUtcWithMilliseconds) {
  EXPECT_EQ(rfc3339(0), "1970-01-01T00:00:00.000Z");
  EXPECT_EQ(rfc3339(1'764'446'400'123), "2025-11-29T20:00:00.123Z");
  EXPECT_EQ(rfc3339(-1), "1969-12-31T23:59:59.999Z");
}
TEST(Clock, SteadyClockNeverGoesBack) {
  const auto a = system_clock().steady_ms();
  EXPECT_LE(a, system_clock().steady_ms());
}
}  // namespace ponder
