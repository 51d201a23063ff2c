#pragma once
// A JobQueue in memory whose every answer the test decides, and a Generator beside it. Calls are
// answered on a thread of their own, as the real queue does. Thread-safe.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "jobs/job_queue.h"

namespace ponder::daemon {

/// One thread that runs what is posted, in order.
class TaskThread {
 public:
  TaskThread() : thread_([this] { loop(); }) {}
  ~TaskThread() { stop(); }
  /// What is posted is done, nothing is from now on.
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  void post(std::function<void()> task) {
    // Told under the lock: what the task does may let another thread destroy this one.
    const std::lock_guard lock(mutex_);
    if (over_) return;
    tasks_.push_back(std::move(task));
    wake_.notify_all();
  }

 private:
  void loop() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return over_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> tasks_;
  bool over_ = false;
  std::thread thread_;
};

class FakeGenerator : public Generator {
 public:
  /// What plan() answers.
  std::function<Result<PromptPlan>(const GenerationRequest&)> planner =
      [](const GenerationRequest&) -> Result<PromptPlan> {
    PromptPlan plan;
    plan.prompt_tokens = 7;
    plan.n_ctx = 32768;
    return plan;
  };

  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override {
    thread_.post(
        [this, request = std::move(request), done = std::move(done)] { done(planner(request)); });
  }
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override {
    std::vector<std::int32_t> ids;
    for (const char c : text)
      ids.push_back(special ? -c : c);
    thread_.post([done = std::move(done), ids] { done(ids); });
  }
  void start(GenerationId, GenerationRequest, std::shared_ptr<OutputSink>) override {}
  void cancel(GenerationId) override {}
  void answer_now(GenerationId) override {}
  void stop() override { thread_.stop(); }
  GeneratorStatus status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  void set_status(GeneratorStatus status) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(status);
  }

 private:
  mutable std::mutex mutex_;
  GeneratorStatus status_ = [] {
    GeneratorStatus s;
    s.state = GeneratorState::ready;
    s.model = {"pebble", "demo", "/models/pebble.gguf", 32768, "cpu"};
    s.pid = 4711;
    return s;
  }();
  TaskThread thread_;
};

class FakeJobQueue : public jobs::JobQueue {
 public:
  // What each call answers; a test replaces what it needs.
  std::function<Result<jobs::Submitted>(const jobs::JobSpec&)> on_submit;
  std::function<Result<json::object>(const std::string& id)> on_get;
  std::function<Result<jobs::ListPage>(const jobs::ListFilter&)> on_list;
  std::function<Result<jobs::ResultPage>(const std::string& id, jobs::Part, std::int64_t,
                                         std::int64_t)>
      on_result;
  std::function<Result<json::object>(const std::string& id)> on_cancel;
  std::function<Result<void>(const std::string& id)> on_remove;
  std::function<Result<json::object>(const std::string& id, bool)> on_pin;
  /// Runs a chat turn: writes to the sink, on the queue's thread.
  std::function<void(const GenerationRequest&, std::shared_ptr<OutputSink>)> on_turn;
  /// The events of a job after a position; pushed one by one.
  std::function<std::vector<jobs::JobEvent>(const std::string& id, std::int64_t after)> on_events;
  jobs::QueueStatus queue_status{0, 0, 0, 1000, true, {}, {}, 1 << 30, 0};

  jobs::CallId submit(jobs::JobSpec spec,
                      std::function<void(Result<jobs::Submitted>)> done) override {
    return post([this, spec = std::move(spec), done = std::move(done)] { done(on_submit(spec)); });
  }
  jobs::CallId get(std::string id, jobs::Look look,
                   std::function<void(Result<json::object>)> done) override {
    {
      const std::lock_guard lock(mutex_);
      last_look_ = look;
    }
    if (look.wait_ms > 0) {
      const std::lock_guard lock(mutex_);
      waits_[next_] = std::move(done);
      changed_.notify_all();
      return next_++;
    }
    return post([this, id, done = std::move(done)] { done(on_get(id)); });
  }
  jobs::CallId list(jobs::ListFilter filter,
                    std::function<void(Result<jobs::ListPage>)> done) override {
    return post([this, filter, done = std::move(done)] { done(on_list(filter)); });
  }
  jobs::CallId result(std::string id, jobs::Part part, std::int64_t offset, std::int64_t limit,
                      std::function<void(Result<jobs::ResultPage>)> done) override {
    return post([=, this, done = std::move(done)] { done(on_result(id, part, offset, limit)); });
  }
  jobs::CallId cancel(std::string id, std::function<void(Result<json::object>)> done) override {
    return post([this, id, done = std::move(done)] { done(on_cancel(id)); });
  }
  jobs::CallId remove(std::string id, std::function<void(Result<void>)> done) override {
    return post([this, id, done = std::move(done)] { done(on_remove(id)); });
  }
  jobs::CallId pin(std::string id, bool pinned,
                   std::function<void(Result<json::object>)> done) override {
    return post([this, id, pinned, done = std::move(done)] { done(on_pin(id, pinned)); });
  }
  std::function<Result<std::vector<std::string>>(const jobs::Prune&)> on_prune;
  jobs::CallId prune(jobs::Prune prune,
                     std::function<void(Result<std::vector<std::string>>)> done) override {
    return post([this, prune, done = std::move(done)] { done(on_prune(prune)); });
  }
  jobs::CallId events(std::string id, std::int64_t after, std::function<void(jobs::JobEvent)> event,
                      std::function<void(Error)>) override {
    const jobs::CallId call = take_id();
    {
      const std::lock_guard lock(mutex_);
      ++subscriptions_;
    }
    thread_.post([this, call, id, after, event = std::move(event)] {
      for (jobs::JobEvent& e : on_events(id, after)) {
        if (is_forgotten(call)) return;
        event(std::move(e));
      }
    });
    return call;
  }
  void forget(jobs::CallId call) override {
    const std::lock_guard lock(mutex_);
    forgotten_.push_back(call);
    waits_.erase(call);
    changed_.notify_all();
  }
  jobs::CallId start_turn(GenerationRequest request, std::shared_ptr<OutputSink> sink) override {
    return post(
        [this, request = std::move(request), sink = std::move(sink)] { on_turn(request, sink); });
  }
  void cancel_turn(jobs::CallId turn) override {
    const std::lock_guard lock(mutex_);
    cancelled_turns_.push_back(turn);
    changed_.notify_all();
  }
  jobs::QueueStatus status() const override { return queue_status; }
  void stop() override {}

  // What a test waits for; false after ten seconds.
  bool wait_until_forgotten() {
    return wait([this] { return !forgotten_.empty(); });
  }
  bool wait_until_turn_cancelled() {
    return wait([this] { return !cancelled_turns_.empty(); });
  }
  bool wait_until_waiting() {
    return wait([this] { return !waits_.empty(); });
  }
  std::int64_t last_wait_ms() { return last_look().wait_ms; }
  jobs::Look last_look() {
    const std::lock_guard lock(mutex_);
    return last_look_;
  }
  int subscriptions() {
    const std::lock_guard lock(mutex_);
    return subscriptions_;
  }
  /// Answers every get() that waits.
  void end_waits(const json::object& envelope) {
    std::map<jobs::CallId, std::function<void(Result<json::object>)>> waits;
    {
      const std::lock_guard lock(mutex_);
      waits.swap(waits_);
    }
    for (const auto& [id, done] : waits)
      done(envelope);
  }

 private:
  template <class Ready>
  bool wait(Ready ready) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), ready);
  }
  jobs::CallId take_id() {
    const std::lock_guard lock(mutex_);
    return next_++;
  }
  jobs::CallId post(std::function<void()> task) {
    thread_.post(std::move(task));
    return take_id();
  }
  bool is_forgotten(jobs::CallId call) {
    const std::lock_guard lock(mutex_);
    return std::find(forgotten_.begin(), forgotten_.end(), call) != forgotten_.end();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  jobs::CallId next_ = 1;
  jobs::Look last_look_;
  int subscriptions_ = 0;
  std::map<jobs::CallId, std::function<void(Result<json::object>)>> waits_;
  std::vector<jobs::CallId> forgotten_;
  std::vector<jobs::CallId> cancelled_turns_;
  TaskThread thread_;  // last: its tasks use all of the above
};

}  // namespace ponder::daemon
