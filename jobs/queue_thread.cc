#include "jobs/queue_thread.h"

#include <algorithm>
#include <chrono>

#include "engine/base/check.h"
#include "engine/base/thread_latency.h"

namespace ponder::jobs {

void ManualExecutor::run() {
  if (thread_) thread_->run_ready();
}

std::optional<std::int64_t> ManualExecutor::next_due_ms() const {
  if (!thread_ || thread_->timers_.empty()) return {};
  return thread_->timers_.begin()->first.first;
}

void QueueThread::start() {
  CHECK(!thread_.joinable());
  if (manual_) {
    manual_->thread_ = this;
    return;
  }
  // Held until thread_ is set, so that the first task already knows its thread.
  const std::lock_guard lock(mutex_);
  thread_ = std::thread([this] { loop(); });
}

bool QueueThread::post(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return false;
    inbox_.push_back(std::move(task));
  }
  wake_.notify_one();
  return true;
}

void QueueThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  if (manual_ && manual_->thread_ == this) {
    run_ready();
    manual_->thread_ = nullptr;
  }
  if (thread_.joinable()) {
    CHECK(!is_current());
    thread_.join();
  }
}

void QueueThread::wait(std::future<void> done) {
  if (!manual_) return done.wait();
  for (;;) {
    run_ready();
    if (done.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return;
    manual_->pass_time();
  }
}

QueueThread::TimerId QueueThread::after(std::int64_t delay_ms, Task task) {
  const TimerId id{clock_.steady_ms() + std::max<std::int64_t>(0, delay_ms), next_timer_++};
  timers_.emplace(id, std::move(task));
  return id;
}

void QueueThread::run(Task& task) {
  busy_since_ms_ = clock_.steady_ms();
  task();
  task = nullptr;  // frees what it holds before the next one runs
  busy_since_ms_ = -1;
}

std::int64_t QueueThread::busy_ms() const {
  const std::int64_t since = busy_since_ms_;
  return since < 0 ? 0 : std::max<std::int64_t>(0, clock_.steady_ms() - since);
}

void QueueThread::fire_due() {
  const TimerId now{clock_.steady_ms(), UINT64_MAX};
  while (!timers_.empty() && timers_.begin()->first <= now) {
    Task task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    run(task);
  }
}

void QueueThread::run_ready() {
  for (;;) {
    std::deque<Task> batch;
    {
      const std::lock_guard lock(mutex_);
      batch.swap(inbox_);
    }
    const bool due = !timers_.empty() && timers_.begin()->first.first <= clock_.steady_ms();
    if (batch.empty() && !due) return;
    for (Task& task : batch)
      run(task);
    fire_due();
  }
}

void QueueThread::loop() {
  wake_this_thread_soon();
  for (;;) {
    std::deque<Task> batch;
    {
      std::unique_lock lock(mutex_);
      const auto ready = [this] { return !inbox_.empty() || stopping_; };
      if (timers_.empty()) {
        wake_.wait(lock, ready);
      } else {
        const std::int64_t wait_ms = timers_.begin()->first.first - clock_.steady_ms();
        if (wait_ms > 0) wake_.wait_for(lock, std::chrono::milliseconds(wait_ms), ready);
      }
      batch.swap(inbox_);
      if (batch.empty() && stopping_) return;
    }
    for (Task& task : batch)
      run(task);
    fire_due();
  }
}

}  // namespace ponder::jobs
