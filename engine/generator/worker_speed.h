#pragma once
// Whether the worker makes its tokens as fast as it usually does. A device whose memory is paged to
// the host, or a machine that throttles, fails no request: it only takes ten times as long.
// Private to worker_generator.cc, which guards it.
#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

namespace ponder {

/// Counts the tokens of all generations together, over the time in which each of them was making
/// tokens: a prompt that is read beside them slows them, and that is no fault. Text that
/// speculation guesses well may be four times as fast as other text, which is why "slow" begins
/// below 30 %.
class SpeedWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// From `now` on all that runs makes tokens, or not.
  void making_tokens(Time now, bool all);
  void tokens(Time now, std::int64_t count);
  /// A new worker: what was slow went with the old one. The usual speed stays.
  void begin_anew();

  struct Speed {
    double now = 0;    ///< tokens a second, last measured; 0: never
    double usual = 0;  ///< the median of this daemon's life; 0: not known yet
    bool slow = false;
  };
  Speed at(Time now) const;

 private:
  struct Stretch {
    std::int64_t tokens = 0;
    double seconds = 0;
    double speed() const { return static_cast<double>(tokens) / seconds; }
  };
  void pass_time(Time now);
  void close();
  double usual() const;

  std::optional<Time> since_;  ///< counted up to here; unset: time does not count
  Stretch open_;
  std::vector<double> fast_;  ///< the newest stretches that were not slow, a ring
  std::size_t next_ = 0;
  std::vector<double> slow_;  ///< of the slow time that goes on
  double slow_s_ = 0;
  double last_ = 0;
};

}  // namespace ponder
