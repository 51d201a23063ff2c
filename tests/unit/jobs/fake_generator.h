#pragma once
// A Generator that does what its test says: every start is recorded, and the test speaks for it,
// from its own thread or through a script that runs at each start.
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/generator/generator.h"

namespace ponder::jobs {

class FakeGenerator : public Generator {
 public:
  struct Run {
    GenerationId id = 0;
    GenerationRequest request;
    std::shared_ptr<OutputSink> sink;
  };
  using PlanDone = std::function<void(Result<PromptPlan>)>;

  // Set before use, or under a quiet queue.
  std::function<Result<PromptPlan>(const GenerationRequest&)> planner = [](const auto&) {
    return PromptPlan{10, 1000, 400, 200, 600, "medium", "template"};
  };
  bool hold_plans = false;                 ///< plan() is answered by release_plans()
  std::function<void(const Run&)> script;  ///< runs inside start(), on the queue thread
  bool end_on_cancel = true;               ///< cancel() ends the generation at once

  void plan(GenerationRequest request, PlanDone done) override {
    {
      const std::lock_guard lock(mutex_);
      ++plans_;
      if (hold_plans) {
        held_.push_back(std::move(done));
        changed_.notify_all();
        return;
      }
    }
    done(planner(request));
  }
  void plan_within(double seconds, GenerationRequest request, PlanDone done) override {
    {
      const std::lock_guard lock(mutex_);
      planned_within_.push_back(seconds);
    }
    plan(std::move(request), std::move(done));
  }
  /// How long each caller of plan_within() waits.
  std::vector<double> planned_within() {
    const std::lock_guard lock(mutex_);
    return planned_within_;
  }
  void tokenize(std::string, bool,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override {
    done(std::vector<std::int32_t>{});
  }
  void start(GenerationId id, GenerationRequest request,
             std::shared_ptr<OutputSink> sink) override {
    Run run{id, std::move(request), std::move(sink)};
    {
      const std::lock_guard lock(mutex_);
      runs_.push_back(run);
      live_.insert(id);
      changed_.notify_all();
    }
    if (script) script(run);
  }
  void answer_now(GenerationId id) override {
    const std::lock_guard lock(mutex_);
    answers_.push_back(id);
    changed_.notify_all();
  }
  void cancel(GenerationId id) override {
    std::shared_ptr<OutputSink> sink;
    {
      const std::lock_guard lock(mutex_);
      cancels_.push_back(id);
      changed_.notify_all();
      if (!end_on_cancel || live_.erase(id) == 0) return;
      for (const Run& run : runs_)
        if (run.id == id) sink = run.sink;
    }
    sink->on_ended(Ended{Finish::cancelled, {}, {}});
  }
  GeneratorStatus status() const override {
    const std::lock_guard lock(mutex_);
    GeneratorStatus s;
    s.state = state_;
    s.reason = reason_;
    s.model = {model_, "user", path_, 1000, "cpu"};
    s.degraded = degraded_;
    s.memory = memory_;
    return s;
  }

  // For tests.
  void set_state(GeneratorState state, std::string reason = {}) {
    const std::lock_guard lock(mutex_);
    state_ = state;
    reason_ = std::move(reason);
  }
  /// Counted so that a job of the planner's takes 611 bytes.
  void set_memory(std::uint64_t budget, std::uint64_t free) {
    const std::lock_guard lock(mutex_);
    memory_ = {budget, free, 0, 1, 1};
  }
  void set_model(std::string id, std::string path = "/nowhere") {
    const std::lock_guard lock(mutex_);
    model_ = std::move(id);
    path_ = std::move(path);
  }
  void set_degraded(std::vector<std::string> ways) {
    const std::lock_guard lock(mutex_);
    degraded_ = std::move(ways);
  }
  /// The run number `n` (from 0); waits for it.
  Run run(std::size_t n) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return runs_.size() > n; })) std::abort();
    return runs_[n];
  }
  std::size_t runs() const {
    const std::lock_guard lock(mutex_);
    return runs_.size();
  }
  std::size_t plans() const {
    const std::lock_guard lock(mutex_);
    return plans_;
  }
  void wait_answers(std::size_t n) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return answers_.size() >= n; })) std::abort();
  }
  void wait_cancels(std::size_t n) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return cancels_.size() >= n; })) std::abort();
  }
  void wait_held_plans(std::size_t n) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return held_.size() >= n; })) std::abort();
  }
  void release_plans(const Result<PromptPlan>& plan) {
    std::vector<PlanDone> held;
    {
      const std::lock_guard lock(mutex_);
      held.swap(held_);
    }
    for (const PlanDone& done : held)
      done(plan);
  }
  void end(const Run& run, Finish finish, std::optional<Error> error = {}) {
    {
      const std::lock_guard lock(mutex_);
      if (live_.erase(run.id) == 0) return;
    }
    Usage usage;
    usage.prompt_tokens = 10;
    run.sink->on_ended(Ended{finish, usage, std::move(error)});
  }
  static void say(const Run& run, Channel channel, std::string text) {
    Delta delta{channel, std::move(text), {}};
    delta.tokens.push_back(static_cast<std::int32_t>(delta.text.size()));
    run.sink->on_delta(delta);
  }
  static void begin(const Run& run) {
    Started started;
    started.plan = {10, 1000, 400, 200, 600, "medium", "template"};
    started.miss_reason = "first";
    run.sink->on_started(started);
    run.sink->on_prefill({10, 10});
  }
  /// A whole generation: thinking, answer, end.
  void complete(const Run& run, std::string answer = "the answer") {
    begin(run);
    say(run, Channel::reasoning, "let me think");
    say(run, Channel::answer, std::move(answer));
    end(run, Finish::end_token);
  }

  static constexpr std::chrono::seconds kPatience{20};

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Run> runs_;
  std::set<GenerationId> live_;
  std::vector<GenerationId> cancels_, answers_;
  std::vector<PlanDone> held_;
  std::size_t plans_ = 0;
  std::vector<double> planned_within_;
  GeneratorState state_ = GeneratorState::ready;
  std::string reason_;
  std::string model_ = "fake";
  std::string path_ = "/nowhere";
  std::vector<std::string> degraded_;
  ContextMemory memory_;
};

}  // namespace ponder::jobs
