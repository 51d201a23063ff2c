#include "daemon/runtime/watchdog.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

namespace ponder::daemon {
namespace {
using std::chrono::milliseconds;
constexpr int kTicks = 20;  // in a bound
constexpr milliseconds kLongestTick{1000};
}  // namespace

Watchdog::Watchdog(Post post, milliseconds bound, std::function<void()> on_stuck)
    : post_(std::move(post)), bound_(bound), on_stuck_(std::move(on_stuck)) {
  if (bound_ > milliseconds{0}) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Watchdog::watch() {
  const milliseconds tick = std::clamp(bound_ / kTicks, milliseconds{1}, kLongestTick);
  const auto came_round = std::make_shared<std::atomic<bool>>(true);  // may outlive the watchdog
  milliseconds missed{0};
  std::unique_lock lock(mutex_);
  for (;;) {
    if (came_round->exchange(false)) {
      missed = milliseconds{0};
      post_([came_round] { *came_round = true; });
    }
    if (ended_.wait_for(lock, tick, [this] { return over_; })) return;
    missed += tick;
    if (missed < bound_ || *came_round) continue;
    lock.unlock();
    return on_stuck_();
  }
}

}  // namespace ponder::daemon
