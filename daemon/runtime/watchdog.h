#pragma once
// Notices that an event loop has stopped going round: a handler that blocks or never ends. Nothing
// else can be told by then, /health least of all.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace ponder::daemon {

/// Has a thread of its own. Time counts in ticks that it was awake for, so that neither a process
/// that was stopped (SIGSTOP, a debugger) nor a machine that slept looks like a loop that is stuck.
class Watchdog {
 public:
  /// Leaves a task for the loop; called on the watchdog's thread.
  using Post = std::function<void(std::function<void()>)>;

  /// `on_stuck` runs once, on the watchdog's thread, when a task has waited `bound` for the loop. A
  /// bound of zero: nothing is watched.
  Watchdog(Post post, std::chrono::milliseconds bound, std::function<void()> on_stuck);
  /// Ends the watch: call it before the loop is stopped. A task that was left does nothing any
  /// more.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void watch();

  const Post post_;
  const std::chrono::milliseconds bound_;
  const std::function<void()> on_stuck_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool over_ = false;
  std::thread thread_;  // last: it uses the others
};

}  // namespace ponder::daemon
