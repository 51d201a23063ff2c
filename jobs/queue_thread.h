#pragma once
// A thread that runs what is posted to it, in order, and timers by the injected clock. Everything
// the queue owns lives on it. A clock that is moved by hand takes effect with the next message.
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "engine/base/clock.h"

namespace ponder::jobs {

class QueueThread;

/// Instead of the queue's thread, for simulations: its holder runs the queue by hand, on a thread
/// of its choice, and so owns the order of things and the clock.
class ManualExecutor {
 public:
  /// Runs what was posted and the timers that are due, until nothing is left to do now.
  void run();
  /// When the next timer is due (steady clock); unset: there is none.
  std::optional<std::int64_t> next_due_ms() const;
  /// Called again and again while JobQueue::stop() waits: moves the clock on.
  std::function<void()> pass_time = [] {};

 private:
  friend class QueueThread;
  QueueThread* thread_ = nullptr;
};

class QueueThread {
 public:
  using Task = std::function<void()>;
  using TimerId = std::pair<std::int64_t, std::uint64_t>;  ///< due time, number

  explicit QueueThread(const Clock& clock, ManualExecutor* manual = nullptr)
      : clock_(clock), manual_(manual) {}
  ~QueueThread() { stop(); }

  void start();
  /// Any thread. False after stop(): the task will not run.
  bool post(Task task);
  /// Any thread: for how long what runs at this moment has been running; 0: nothing runs.
  std::int64_t busy_ms() const;
  /// Runs what was posted before, then ends the thread. Not from the queue thread itself.
  void stop();
  /// Until `done` is set by what this thread runs. Not from the queue thread itself.
  void wait(std::future<void> done);

  /// Queue thread only.
  TimerId after(std::int64_t delay_ms, Task task);
  void cancel(const TimerId& timer) { timers_.erase(timer); }
  bool is_current() const { return std::this_thread::get_id() == thread_.get_id(); }

 private:
  friend class ManualExecutor;
  void loop();
  void run(Task& task);
  void fire_due();
  void run_ready();

  const Clock& clock_;
  ManualExecutor* const manual_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Task> inbox_;  // guarded by mutex_, as is stopping_
  bool stopping_ = false;
  std::atomic<std::int64_t> busy_since_ms_{-1};
  std::map<TimerId, Task> timers_;  // queue thread
  std::uint64_t next_timer_ = 1;
  std::thread thread_;
};

}  // namespace ponder::jobs
