#include "engine/generator/worker_speed.h"

#include <algorithm>
#include <utility>

namespace ponder {
namespace {

using Seconds = std::chrono::duration<double>;

// A stretch is long enough to be measured by either.
constexpr std::int64_t kStretchTokens = 32;
constexpr double kStretchSeconds = 2;
constexpr std::size_t kKept = 256;
constexpr double kSlowBelow = 0.3;
constexpr double kSlowAfter = 6;
// What stays slow for so long has become usual: a longer context, another kind of text.
constexpr double kUsualAfter = 600;

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

void SpeedWatch::making_tokens(Time now, bool all) {
  pass_time(now);
  if (!all)
    since_.reset();
  else if (!since_)
    since_ = now;
}

void SpeedWatch::tokens(Time now, std::int64_t count) {
  if (!since_) return;
  pass_time(now);
  open_.tokens += count;
  if (open_.seconds > 0 && (open_.tokens >= kStretchTokens || open_.seconds >= kStretchSeconds))
    close();
}

void SpeedWatch::begin_anew() {
  since_.reset();
  open_ = {};
  slow_.clear();
  slow_s_ = 0;
}

void SpeedWatch::pass_time(Time now) {
  if (!since_) return;
  open_.seconds += Seconds(now - *since_).count();
  since_ = now;
}

void SpeedWatch::close() {
  const Stretch stretch = std::exchange(open_, {});
  const double speed = last_ = stretch.speed();
  const double normal = usual();
  if (normal > 0 && speed < kSlowBelow * normal) {
    slow_s_ += stretch.seconds;
    if (slow_.size() < kKept) slow_.push_back(speed);
    if (slow_s_ < kUsualAfter) return;
    fast_ = std::exchange(slow_, {});
    next_ = 0;
    slow_s_ = 0;
    return;
  }
  slow_.clear();
  slow_s_ = 0;
  if (fast_.size() < kKept)
    fast_.push_back(speed);
  else
    fast_[next_++ % kKept] = speed;
}

double SpeedWatch::usual() const {
  return median(fast_);
}

SpeedWatch::Speed SpeedWatch::at(Time now) const {
  Speed speed{last_, usual(), false};
  double slow_s = slow_s_;
  const double open_s = open_.seconds + (since_ ? Seconds(now - *since_).count() : 0);
  if (open_s >= kStretchSeconds) {  // too slow even to end its stretch
    const double so_far = static_cast<double>(open_.tokens) / open_s;
    if (so_far < kSlowBelow * speed.usual) {
      slow_s += open_s;
      speed.now = so_far;
    }
  }
  speed.slow = speed.usual > 0 && slow_s >= kSlowAfter;
  return speed;
}

}  // namespace ponder
