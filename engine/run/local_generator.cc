#include "engine/run/local_generator.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "engine/run/output_stream.h"

namespace ponder::run {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

/// What a generation is before and while it runs. The flag is set by any thread; the rest belongs
/// to prep until it is handed to the engine.
struct Running {
  GenerationId id = 0;
  GenerationRequest request;
  std::shared_ptr<OutputSink> sink;
  std::atomic<bool> cancelled{false};
  Clock::time_point asked = Clock::now();

  std::vector<text::TokenId> prompt;
  std::unique_ptr<OutputStream> output;
  std::unique_ptr<models::SequenceState> sequence;
  std::vector<float> logits;
  std::size_t prefilled = 0;
  double prefill_s = 0;
};

using Task = std::function<void()>;

// A prefill step is at most model.chunk() tokens and about this long: cancel, other sequences and
// the daemon's stall clock wait for one. Rows are the same in any chunk.
constexpr double kStepSeconds = 1.0;
constexpr std::int64_t kFirstStep = 64;  // before the speed is known
constexpr std::int64_t kLeastStep = 16;

}  // namespace

class LocalGenerator::Impl {
 public:
  Impl(LoadedModel loaded, EffortBudgets effort_budgets)
      : loaded_(std::move(loaded)), effort_budgets_(effort_budgets), born_(Clock::now()) {
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

  Result<PromptPlan> plan_of(const GenerationRequest& request) const {
    TRY(const RenderedPrompt prompt, render_prompt(loaded_.vocabulary, request));
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
    auto running = std::make_shared<Running>();
    running->id = id;
    running->request = std::move(request);
    running->sink = std::move(sink);
    {
      const std::lock_guard lock(mutex_);
      live_[id] = running;
    }
    post([this, running] { make_ready(running); });
  }

  void cancel(GenerationId id) {
    const std::lock_guard lock(mutex_);
    const auto it = live_.find(id);
    if (it != live_.end()) it->second->cancelled = true;
  }

 private:
  void stop(bool& flag, std::condition_variable& wake_up, std::thread& thread) {
    {
      const std::lock_guard lock(mutex_);
      flag = true;
      for (const auto& [id, running] : live_)
        running->cancelled = true;
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

  void make_ready(const std::shared_ptr<Running>& running) {
    if (running->cancelled) return refuse(running, Finish::cancelled, {});
    Result<RenderedPrompt> prompt = render_prompt(loaded_.vocabulary, running->request);
    if (!prompt) return refuse(running, Finish::failed, prompt.error());
    Result<PromptPlan> plan = plan_prompt(loaded_.vocabulary, *prompt, running->request,
                                          loaded_.model->n_ctx(), effort_budgets_);
    if (!plan) return refuse(running, Finish::failed, plan.error());
    running->prompt = std::move(prompt->ids);
    running->output = std::make_unique<OutputStream>(
        *loaded_.vocabulary.tokenizer, running->request, std::move(*plan), prompt->starts_thinking,
        running->sink, running->asked);
    running->request = {};
    {
      const std::lock_guard lock(mutex_);
      engine_inbox_.push_back(running);
    }
    engine_wake_.notify_one();
  }

  void refuse(const std::shared_ptr<Running>& running, Finish finish, std::optional<Error> error) {
    forget(running->id);
    running->sink->on_ended({finish, {}, std::move(error)});
  }

  void forget(GenerationId id) {
    const std::lock_guard lock(mutex_);
    live_.erase(id);
  }

  // --- engine -------------------------------------------------------------------------------

  void run() {
    std::deque<std::shared_ptr<Running>> turn;  // the next one first
    while (true) {
      {
        std::unique_lock lock(mutex_);
        if (turn.empty())
          engine_wake_.wait(lock, [this] { return engine_stopping_ || !engine_inbox_.empty(); });
        turn.insert(turn.end(), engine_inbox_.begin(), engine_inbox_.end());
        engine_inbox_.clear();
        if (turn.empty()) return;  // stopping, and all that ran was cancelled and has ended
      }
      const std::shared_ptr<Running> running = std::move(turn.front());
      turn.pop_front();
      step(*running);
      if (running->output->ended()) {
        forget(running->id);
        continue;  // its state is freed here
      }
      turn.push_back(running);
    }
  }

  void step(Running& r) {
    if (r.cancelled) return r.output->end(Finish::cancelled);
    try {
      Result<void> done = r.prefilled < r.prompt.size() ? prefill(r) : decode(r);
      if (!done) r.output->end(Finish::failed, std::move(done).error());
    } catch (const std::bad_alloc&) {
      r.output->end(Finish::failed, Error{ErrorCode::out_of_memory,
                                          "there is not enough memory for this conversation",
                                          "use a smaller --ctx, or close other programs"});
    }
  }

  Result<void> prefill(Running& r) {
    if (!r.sequence) {
      r.sequence = loaded_.model->new_sequence();
      r.logits.resize(static_cast<std::size_t>(loaded_.model->vocab()));
      Started started;
      started.plan = r.output->plan();
      started.miss_reason = "no_store";
      r.sink->on_started(started);
    }
    const Clock::time_point began = Clock::now();
    const std::size_t left = r.prompt.size() - r.prefilled;
    const std::size_t n = std::min(left, prefill_step());
    const bool last = n == left;
    TRY_VOID(loaded_.model->forward(*r.sequence, std::span(r.prompt).subspan(r.prefilled, n),
                                    last ? 1 : 0,
                                    last ? std::span<float>(r.logits) : std::span<float>()));
    const double took = seconds_since(began);
    r.prefilled += n;
    r.prefill_s += took;
    if (n >= static_cast<std::size_t>(kLeastStep) && took > 0)
      prefill_per_s_ = static_cast<double>(n) / took;
    r.sink->on_prefill(
        {static_cast<std::int64_t>(r.prefilled), static_cast<std::int64_t>(r.prompt.size())});
    if (last && r.prefill_s > 0)
      r.output->usage().prefill_tokens_per_s = static_cast<double>(r.prompt.size()) / r.prefill_s;
    return {};
  }

  std::size_t prefill_step() const {
    const std::int64_t most = loaded_.model->chunk();
    if (prefill_per_s_ <= 0) return static_cast<std::size_t>(std::min(kFirstStep, most));
    const double fits = std::min(prefill_per_s_ * kStepSeconds, static_cast<double>(most));
    const auto n = std::max(static_cast<std::int64_t>(fits), kLeastStep);
    return static_cast<std::size_t>(std::min(n, most));
  }

  Result<void> decode(Running& r) {
    const std::optional<text::TokenId> id = r.output->next(r.logits);
    if (!id || r.output->ended()) return {};
    return loaded_.model->forward(*r.sequence, std::span(&*id, 1), 1, r.logits);
  }

  const LoadedModel loaded_;
  const EffortBudgets effort_budgets_;
  const Clock::time_point born_;

  std::mutex mutex_;
  std::condition_variable prep_wake_, engine_wake_;
  // Guarded by mutex_.
  bool prep_stopping_ = false;
  bool engine_stopping_ = false;
  std::deque<Task> prep_inbox_;
  std::deque<std::shared_ptr<Running>> engine_inbox_;
  std::map<GenerationId, std::shared_ptr<Running>> live_;

  double prefill_per_s_ = 0;  // of the last chunk; the engine's thread only

  std::thread prep_, engine_;
};

LocalGenerator::LocalGenerator(LoadedModel model, EffortBudgets effort_budgets)
    : impl_(std::make_unique<Impl>(std::move(model), effort_budgets)) {}
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

GeneratorStatus LocalGenerator::status() const {
  GeneratorStatus s;
  s.state = GeneratorState::ready;
  s.model = impl_->loaded().info;
  s.pid = ::getpid();
  s.uptime_s = impl_->age_s();
  return s;
}

}  // namespace ponder::run
