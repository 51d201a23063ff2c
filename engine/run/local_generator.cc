#include "engine/run/local_generator.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/generator/budget.h"
#include "engine/models/available_memory.h"
#include "engine/run/engine_loop.h"
#include "engine/run/marks.h"
#include "engine/run/output_stream.h"
#include "engine/run/state_budget.h"

namespace ponder::run {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// A turn until it is prepared.
struct Asked {
  std::shared_ptr<Turn> turn = std::make_shared<Turn>();
  GenerationRequest request;
  std::shared_ptr<OutputSink> sink;
  Clock::time_point at = Clock::now();
};

using Task = std::function<void()>;

LoopOptions loop_options(const models::Model& model, const GeneratorOptions& options) {
  LoopOptions loop;
  const std::optional<std::uint64_t> available = models::available_memory();
  const StateBudget budget = default_state_budget(available);
  const auto bytes_of = [](std::optional<std::int64_t> mib, std::uint64_t otherwise) {
    return mib ? static_cast<std::uint64_t>(*mib) << 20 : otherwise;
  };
  loop.store.device_bytes = bytes_of(options.device_state_mib, budget.device_bytes);
  loop.store.host_bytes = bytes_of(options.host_state_mib, budget.host_bytes);
  loop.store.page_bytes = model.page_bytes();
  loop.context_bytes = bytes_of(options.context_mib, default_context_budget(available));
  loop.spec = options.spec;
  return loop;
}

}  // namespace

class LocalGenerator::Impl {
 public:
  Impl(LoadedModel loaded, const GeneratorOptions& options)
      : loaded_(std::move(loaded)),
        effort_budgets_(options.effort_budgets),
        born_(Clock::now()),
        loop_(*loaded_.model, *loaded_.vocabulary.tokenizer, loop_options(*loaded_.model, options),
              [this](const ContextMemory& memory) { tell_memory(memory); }),
        memory_(loop_.memory()) {
    prep_ = std::thread([this] { prepare(); });
    engine_ = std::thread([this] { run(); });
  }

  ~Impl() {
    // Prep first: what it still hands over, the engine ends.
    stop(prep_stopping_, prep_wake_, prep_);
    stop(engine_stopping_, engine_wake_, engine_);
  }

  const LoadedModel& loaded() const { return loaded_; }
  double age_s() const { return seconds_since(born_); }
  ContextMemory memory() const {
    const std::lock_guard lock(mutex_);
    return memory_;
  }
  void watch_memory(std::function<void(const ContextMemory&)> changed) {
    const std::lock_guard lock(mutex_);
    memory_changed_ = std::move(changed);
  }

  /// On the prep thread.
  Result<PromptPlan> plan_of(const GenerationRequest& request) {
    TRY(const RenderedPrompt prompt,
        render_prompt(loaded_.vocabulary, request, grammars_, most_ids()));
    return plan_prompt(loaded_.vocabulary, prompt, request, loaded_.model->n_ctx(),
                       effort_budgets_);
  }

  /// For the prep thread.
  void post(Task task) {
    {
      const std::lock_guard lock(mutex_);
      prep_inbox_.push_back(std::move(task));
    }
    prep_wake_.notify_one();
  }

  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) {
    auto asked = std::make_shared<Asked>();
    asked->turn->id = id;
    asked->request = std::move(request);
    asked->sink = std::move(sink);
    {
      const std::lock_guard lock(mutex_);
      live_[id] = asked->turn;
    }
    post([this, asked] { make_ready(*asked); });
  }

  void cancel(GenerationId id) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it != live_.end()) it->second->cancelled = true;
  }

  void answer_now(GenerationId id) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it != live_.end()) it->second->answer_now = true;
  }

 private:
  std::size_t most_ids() const {
    return static_cast<std::size_t>(most_counted(loaded_.model->n_ctx()));
  }

  void stop(bool& flag, std::condition_variable& wake_up, std::thread& thread) {
    {
      const std::lock_guard lock(mutex_);
      flag = true;
      for (const auto& [id, turn] : live_)
        turn->cancelled = true;
    }
    wake_up.notify_one();
    thread.join();
  }

  // --- prep ---------------------------------------------------------------------------------

  void prepare() {
    while (true) {
      std::unique_lock lock(mutex_);
      prep_wake_.wait(lock, [this] { return prep_stopping_ || !prep_inbox_.empty(); });
      if (prep_inbox_.empty()) return;  // what was asked before the end is still answered
      const Task task = std::move(prep_inbox_.front());
      prep_inbox_.pop_front();
      lock.unlock();
      task();
    }
  }

  void make_ready(Asked& asked) {
    Turn& turn = *asked.turn;
    if (turn.cancelled) return refuse(asked, Finish::cancelled, {});
    Result<RenderedPrompt> prompt =
        render_prompt(loaded_.vocabulary, asked.request, grammars_, most_ids());
    if (!prompt) return refuse(asked, Finish::failed, prompt.error());
    Result<PromptPlan> plan = plan_prompt(loaded_.vocabulary, *prompt, asked.request,
                                          loaded_.model->n_ctx(), effort_budgets_);
    if (!plan) return refuse(asked, Finish::failed, plan.error());
    if (const Result<void> fits = check_resume(asked.request.resume, *plan); !fits)
      return refuse(asked, Finish::failed, fits.error());
    turn.marks = plan_marks(*loaded_.vocabulary.tokenizer, *prompt);
    turn.ids = std::move(prompt->ids);
    turn.most_tokens = plan->total_budget;
    turn.ignore_eos = asked.request.ignore_eos;
    turn.output = std::make_unique<OutputStream>(*loaded_.vocabulary.tokenizer, asked.request,
                                                 std::move(*plan), prompt->starts_thinking,
                                                 asked.sink, asked.at, prompt->grammar);
    turn.resume = std::move(asked.request.resume);
    {
      const std::lock_guard lock(mutex_);
      engine_inbox_.push_back(asked.turn);
    }
    engine_wake_.notify_one();
  }

  /// Resumed tokens count as the output they are: the plan is that of the uncut run.
  Result<void> check_resume(const std::vector<std::int32_t>& resume, const PromptPlan& plan) const {
    const std::int32_t known = loaded_.vocabulary.tokenizer->size();
    for (const std::int32_t id : resume)
      if (id < 0 || id >= known)
        return fail(
            ErrorCode::bad_request,
            fmt::format("{} is not a token id of this model, so nothing can go on from it", id),
            "start the job again without its stored tokens");
    const auto made = static_cast<std::int64_t>(resume.size());
    if (plan.prompt_tokens + made <= plan.n_ctx) return {};
    Error error{ErrorCode::context_length_exceeded,
                fmt::format("the prompt has {} tokens and {} were made before, more than the "
                            "window of {} holds",
                            plan.prompt_tokens, made, plan.n_ctx),
                "give the daemon the --ctx that the job was started with"};
    error.details = {
        {"n_prompt_tokens", plan.prompt_tokens}, {"n_reserved", made}, {"n_ctx", plan.n_ctx}};
    return fail(std::move(error));
  }

  void refuse(const Asked& asked, Finish finish, std::optional<Error> error) {
    forget(asked.turn->id);
    asked.sink->on_ended({finish, {}, std::move(error)});
  }

  void forget(GenerationId id) {
    const std::lock_guard lock(mutex_);
    live_.erase(id);
  }

  // --- engine -------------------------------------------------------------------------------

  void tell_memory(const ContextMemory& memory) {
    std::function<void(const ContextMemory&)> changed;
    {
      const std::lock_guard lock(mutex_);
      memory_ = memory;
      changed = memory_changed_;
    }
    if (changed) changed(memory);
  }

  void run() {
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (loop_.idle())
          engine_wake_.wait(lock, [this] { return engine_stopping_ || !engine_inbox_.empty(); });
        for (std::shared_ptr<Turn>& turn : engine_inbox_)
          loop_.add(std::move(turn));
        engine_inbox_.clear();
        if (loop_.idle()) return;  // stopping, and all that ran was cancelled and has ended
      }
      for (const std::shared_ptr<Turn>& turn : loop_.step())
        forget(turn->id);
    }
  }

  const LoadedModel loaded_;
  const EffortBudgets effort_budgets_;
  const Clock::time_point born_;

  mutable std::mutex mutex_;
  std::condition_variable prep_wake_, engine_wake_;
  // Guarded by mutex_.
  bool prep_stopping_ = false;
  bool engine_stopping_ = false;
  std::deque<Task> prep_inbox_;
  std::deque<std::shared_ptr<Turn>> engine_inbox_;
  std::map<GenerationId, std::shared_ptr<Turn>> live_;

  EngineLoop loop_;    // the engine's thread only
  Grammars grammars_;  // the prep thread only

  ContextMemory memory_;  // guarded by mutex_, as is the next
  std::function<void(const ContextMemory&)> memory_changed_;

  std::thread prep_, engine_;
};

LocalGenerator::LocalGenerator(LoadedModel model, const GeneratorOptions& options)
    : impl_(std::make_unique<Impl>(std::move(model), options)) {}
LocalGenerator::~LocalGenerator() = default;

void LocalGenerator::plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) {
  impl_->post([impl = impl_.get(), request = std::move(request), done = std::move(done)] {
    done(impl->plan_of(request));
  });
}

void LocalGenerator::tokenize(std::string text, bool special,
                              std::function<void(Result<std::vector<std::int32_t>>)> done) {
  impl_->post([impl = impl_.get(), text = std::move(text), special, done = std::move(done)] {
    done(impl->loaded().vocabulary.tokenizer->encode(text, special));
  });
}

void LocalGenerator::start(GenerationId id, GenerationRequest request,
                           std::shared_ptr<OutputSink> sink) {
  impl_->start(id, std::move(request), std::move(sink));
}

void LocalGenerator::cancel(GenerationId id) {
  impl_->cancel(id);
}

void LocalGenerator::answer_now(GenerationId id) {
  impl_->answer_now(id);
}

GeneratorStatus LocalGenerator::status() const {
  GeneratorStatus s;
  s.state = GeneratorState::ready;
  s.model = impl_->loaded().info;
  s.pid = ::getpid();
  s.uptime_s = impl_->age_s();
  s.memory = impl_->memory();
  return s;
}

void LocalGenerator::watch_memory(std::function<void(const ContextMemory&)> changed) {
  impl_->watch_memory(std::move(changed));
}

}  // namespace ponder::run
