#pragma once
// A thread that runs what is posted to it, in order, and timers by the injected clock. Everything
// the queue owns lives on it. A clock that is moved by hand takes effect with the next message.
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/clock.h"

namespace ponder::jobs {

class QueueThread {
 public:
  using Task = std::function<void()>;
  using TimerId = std::pair<std::int64_t, std::uint64_t>;  ///< due time, number

  explicit QueueThread(const Clock& clock) : clock_(clock) {}
  ~QueueThread() { stop(); }

  void start();
  /// Any thread. False after stop(): the task will not run.
  bool post(Task task);
  /// Runs what was posted before, then ends the thread. Not from the queue thread itself.
  void stop();

  /// Queue thread only.
  TimerId after(std::int64_t delay_ms, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  void loop();
  void fire_due();

  const Clock& clock_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> inbox_;  // guarded by mutex_, as is stopping_
  bool stopping_ = false;
  std::map<TimerId, Task> timers_;  // queue thread
  std::uint64_t next_timer_ = 1;
  std::thread thread_;
};

}  // namespace ponder::jobs
