// A loop that does not come round is noticed, and no other.
#include "daemon/runtime/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <future>
#include <mutex>
#include <vector>

#include "daemon/http/server.h"

namespace ponder::daemon {
namespace {
using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Watchdog, NoticesAServerWhoseLoopIsHeldUp) {
  Server server({});
  server.start([](RequestHead&) { return std::nullopt; }, [](auto, auto) {},
               [](const Error&) { return Response{}; });
  std::promise<void> noticed;
  Watchdog watchdog([&](std::function<void()> task) { server.post(std::move(task)); },
                    milliseconds(60), [&] { noticed.set_value(); });
  std::promise<void> release;
  server.post([held = release.get_future().share()] { held.wait(); });
  EXPECT_EQ(noticed.get_future().wait_for(seconds(20)), std::future_status::ready);
  release.set_value();
}

TEST(Watchdog, SaysNothingOfALoopThatGoesRound) {
  std::atomic<int> rounds{0};
  std::atomic<bool> fired{false};
  std::promise<void> enough;
  {
    const Watchdog watchdog(
        [&](const std::function<void()>& task) {
          task();
          if (++rounds == 100) enough.set_value();  // five bounds
        },
        milliseconds(20), [&] { fired = true; });
    ASSERT_EQ(enough.get_future().wait_for(seconds(20)), std::future_status::ready);
  }
  EXPECT_FALSE(fired);
}

TEST(Watchdog, LeavesOneTaskAndTouchesNothingOnceItIsOver) {
  std::mutex mutex;
  std::vector<std::function<void()>> left;
  std::promise<void> noticed;
  {
    const Watchdog watchdog(
        [&](std::function<void()> task) {
          const std::lock_guard lock(mutex);
          left.push_back(std::move(task));
        },
        milliseconds(20), [&] { noticed.set_value(); });
    ASSERT_EQ(noticed.get_future().wait_for(seconds(20)), std::future_status::ready);
  }
  ASSERT_EQ(left.size(), 1u);
  left.front()();
}

TEST(Watchdog, WithoutABoundNothingIsWatched) {
  bool asked = false;
  {
    const Watchdog watchdog([&](const auto&) { asked = true; }, milliseconds(0), [] {});
  }
  EXPECT_FALSE(asked);
}

}  // namespace
}  // namespace ponder::daemon
