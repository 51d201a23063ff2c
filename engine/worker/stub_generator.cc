#include "engine/worker/stub_generator.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "engine/base/utf8.h"
#include "engine/generator/budget.h"
#include "engine/generator/stop_strings.h"
#include "engine/worker/stub_script.h"

namespace ponder::worker {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::int64_t kDefaultCtx = 32768;
constexpr std::int64_t kPrefillChunk = 512;
constexpr double kPrefillReportEvery_s = 0.05;
constexpr std::int64_t kLoopNoticedAfter = 64;  // repeats until the end is `repetition`
constexpr std::string_view kNotUtf8 = "\xC3\x28\xFF\xE2\x82";

constexpr std::array<std::string_view, 32> kWords{
    "amber",  "basin",  "cedar",  "delta", "ember",  "fjord",   "grove", "heath",
    "inlet",  "jetty",  "knoll",  "larch", "marsh",  "north",   "ocean", "plain",
    "quartz", "ridge",  "stream", "tarn",  "upland", "valley",  "weald", "xenon",
    "yarrow", "zephyr", "basalt", "coral", "dune",   "estuary", "flint", "glade"};
constexpr std::int32_t kWordOfScript = 100;  // token ids: the words above, then these
constexpr std::int32_t kBadBytes = 101;
// A token of thinking is the same word with this on top, so that a run that resumes knows where the
// thinking was closed, also where it was closed from outside.
constexpr std::int32_t kThinking = 1000;

Clock::duration seconds(double s) {
  return std::chrono::duration_cast<Clock::duration>(Seconds(s));
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return hash;
}

/// splitmix64's finisher: neighbouring inputs give unrelated outputs.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/// What stands for a chat template: every word of the request that a model would read.
std::string render(const GenerationRequest& request) {
  if (request.raw_prompt) return *request.raw_prompt;
  std::string text;
  if (!request.chat.tools.empty()) text += to_json(request.chat.tools) + "\n";
  for (const Message& m : request.chat.messages) {
    text += m.role + ": ";
    if (m.reasoning_content) text += *m.reasoning_content + "\n";
    text += m.content;
    for (const ToolCall& call : m.tool_calls)
      text += call.name + to_json(call.arguments);
    text += '\n';
  }
  return text;
}

std::string_view last_user_text(const GenerationRequest& request) {
  if (request.raw_prompt) return *request.raw_prompt;
  for (auto m = request.chat.messages.rbegin(); m != request.chat.messages.rend(); ++m)
    if (m->role == "user") return m->content;
  return {};
}

std::vector<std::int32_t> ids_of(std::string_view text) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < text.size(); at += 4)
    ids.push_back(static_cast<std::int32_t>(fnv1a(text.substr(at, 4)) & 0x7FFFFF));
  return ids;
}

bool thinks(const GenerationRequest& request) {
  return ponder::thinks(request.chat.effort.value_or(Effort{}));
}

Result<PromptPlan> plan_of(const GenerationRequest& request, std::int64_t n_ctx) {
  const Effort effort = request.chat.effort.value_or(Effort{});
  PromptPlan plan;
  plan.prompt_tokens = static_cast<std::int64_t>(ids_of(render(request)).size());
  plan.n_ctx = n_ctx;
  TRY(const BudgetPlan budgets,
      plan_budgets(plan.prompt_tokens, n_ctx, request.budgets, thinks(request), effort.budget));
  plan.reasoning_budget = budgets.reasoning;
  plan.answer_budget = budgets.answer;
  plan.total_budget = budgets.total;
  plan.effort_used = to_string(effort);
  plan.effort_by = effort.budget ? "budget" : "template";
  return plan;
}

/// One output, token by token.
class Stream {
 public:
  Stream(GenerationRequest request, std::shared_ptr<OutputSink> sink, std::int64_t n_ctx)
      : request_(std::move(request)), sink_(std::move(sink)), stops_(request_.sampling.stop) {
    Result<StubScript> script = parse_stub_script(last_user_text(request_));
    Result<PromptPlan> plan = plan_of(request_, n_ctx);
    if (!script || !plan) {
      refused_ = script ? plan.error() : script.error();
      return;
    }
    script_ = std::move(*script);
    plan_ = std::move(*plan);
    seed_ = fnv1a(render(request_));
    thinking_ =
        thinks(request_) && (script_.think > 0 || script_.fault == StubFault::endless_thinking);
    usage_.prompt_tokens = plan_.prompt_tokens;
    for (const std::int32_t id : request_.resume) {
      close_thinking_when_due();
      if (thinking_ && id < kThinking) {
        thinking_ = false;
        forced_ = true;
      }
      make_token();  // told by the earlier run
    }
    resumed_ = made_;
  }

  Clock::time_point due() const { return due_; }

  /// The next thing: the start, a prefill chunk, or a token. False when it has ended.
  bool step() {
    if (refused_) return end(Finish::failed, refused_);
    if (!started_) return begin();
    if (prefill_step_ < prefill_steps_) return prefill();
    return token();
  }

  void cancelled() { end(Finish::cancelled); }
  void answer_now() { asked_to_answer_ = true; }

 private:
  bool begin() {
    started_ = true;
    asked_ = due_ = Clock::now();
    Started started;
    started.plan = plan_;
    started.miss_reason = "no_store";
    sink_->on_started(started);
    // A slow prefill reports often, as a real one of that length would.
    const auto chunks = (plan_.prompt_tokens + kPrefillChunk - 1) / kPrefillChunk;
    const auto reports =
        static_cast<std::int64_t>(std::ceil(script_.prefill_s / kPrefillReportEvery_s));
    prefill_steps_ = std::max<std::int64_t>({1, chunks, reports});
    due_ = prefill_due(1);
    return true;
  }

  Clock::time_point prefill_due(std::int64_t step) const {
    return asked_ + seconds(script_.prefill_s * static_cast<double>(step) /
                            static_cast<double>(prefill_steps_));
  }

  bool prefill() {
    ++prefill_step_;
    sink_->on_prefill({plan_.prompt_tokens * prefill_step_ / prefill_steps_, plan_.prompt_tokens});
    due_ = prefill_due(std::min(prefill_step_ + 1, prefill_steps_));
    if (prefill_step_ == prefill_steps_) {
      const double took = Seconds(Clock::now() - asked_).count();
      if (took > 0) usage_.prefill_tokens_per_s = static_cast<double>(plan_.prompt_tokens) / took;
    }
    return true;
  }

  Clock::duration pause_between_tokens() const {
    double rate = script_.rate;
    if (script_.fault == StubFault::slow && made_ >= script_.after)
      rate = std::min(2.0, rate / 100);
    return seconds(1 / rate);
  }

  bool fault_now(StubFault fault) const { return script_.fault == fault && made_ == script_.after; }

  bool token() {
    if (fault_now(StubFault::hang)) {
      due_ = Clock::time_point::max();
      return true;
    }
    if (fault_now(StubFault::crash)) std::abort();
    if (fault_now(StubFault::exit0)) ::_exit(0);
    if (fault_now(StubFault::out_of_memory))
      return end(Finish::failed,
                 Error{ErrorCode::out_of_memory, "the stub was told to run out of memory"});
    if (fault_now(StubFault::device_lost))
      return end(Finish::failed,
                 Error{ErrorCode::device_lost, "the stub was told to lose its device"});

    if (stops_.hit()) return end(Finish::stop_string);  // by resumed tokens
    close_thinking_when_due();
    if (answer_is_whole()) return end(Finish::end_token);
    if (made_ == resumed_ && resumed_ > 0 && limit_reached()) return end(Finish::output_limit);
    emit();
    if (stops_.hit()) return end(Finish::stop_string);
    if (looping() && made_ - script_.after >= kLoopNoticedAfter && !request_.ignore_eos)
      return end(Finish::repetition);
    if (thinking_ && budget_spent() && !thought_enough() && !answers_on_limit())
      return end(Finish::reasoning_exhausted);
    if (limit_reached() && !answer_is_whole()) return end(Finish::output_limit);
    due_ += pause_between_tokens();
    return true;
  }

  bool looping() const { return script_.fault == StubFault::loop && made_ >= script_.after; }

  bool answers_on_limit() const { return request_.on_limit == OnLimit::answer; }
  bool budget_spent() const { return usage_.reasoning_tokens >= plan_.reasoning_budget; }

  void close_thinking_when_due() {
    if (!thinking_) return;
    const bool enough = thought_enough();
    if (!enough && !asked_to_answer_ && !(answers_on_limit() && budget_spent())) return;
    thinking_ = false;
    forced_ = !enough;
  }

  bool thought_enough() const {
    return usage_.reasoning_tokens >= script_.think && !looping() &&
           script_.fault != StubFault::endless_thinking;
  }

  bool answer_is_whole() const {
    return !thinking_ && usage_.answer_tokens >= script_.tokens && !looping() &&
           !request_.ignore_eos;
  }

  bool limit_reached() const {
    const auto& most = request_.budgets.max_answer_tokens;
    return made_ >= plan_.total_budget || (most && usage_.answer_tokens >= *most);
  }

  Delta make_token() {
    std::int64_t& count = thinking_ ? usage_.reasoning_tokens : usage_.answer_tokens;
    Delta delta;
    delta.channel = thinking_ ? Channel::reasoning : Channel::answer;
    // A loop repeats the word at which it began.
    const std::int64_t index = looping() && count > 0 ? loop_at_ : count;
    if (!looping()) loop_at_ = count;
    const std::uint64_t number =
        mix(seed_ ^ mix(static_cast<std::uint64_t>(index) * 2 + (thinking_ ? 1 : 0)));
    std::int32_t id = static_cast<std::int32_t>(number % kWords.size());
    std::string text(kWords[static_cast<std::size_t>(id)]);
    if (!script_.word.empty()) id = kWordOfScript, text = script_.word;
    if (fault_now(StubFault::invalid_utf8)) id = kBadBytes, text = replace_invalid(kNotUtf8);
    if (count > 0) text.insert(0, " ");
    if (thinking_) id += kThinking;
    delta.tokens = {id};
    if (request_.sampling.top_logprobs) delta.logprobs = {logprobs_of(id, text)};
    delta.text = thinking_ ? text : stops_.push(text);
    delta.forced_answer = forced_;
    ++count;
    ++made_;
    return delta;
  }

  void emit() {
    const Delta delta = make_token();
    const Clock::time_point t = Clock::now();
    if (made_ == resumed_ + 1) {
      first_token_ = t;
      usage_.ttft_s = Seconds(t - asked_).count();
    } else if (t > first_token_) {
      usage_.tokens_per_s =
          static_cast<double>(made_ - resumed_ - 1) / Seconds(t - first_token_).count();
    }
    sink_->on_delta(delta);
  }

  bool end(Finish finish, std::optional<Error> error = {}) {
    if (const std::string rest = finish == Finish::cancelled ? "" : stops_.flush(); !rest.empty())
      sink_->on_delta({Channel::answer, rest, {}});
    sink_->on_ended({finish, usage_, std::move(error), forced_});
    return false;
  }

  /// It never hesitates.
  TokenLogprobs logprobs_of(std::int32_t id, const std::string& text) const {
    TokenLogprobs certain{id, 0, {}, text, {}};
    if (*request_.sampling.top_logprobs > 0) {
      certain.top = {{id, 0}};
      certain.top_bytes = {text};
    }
    return certain;
  }

  const GenerationRequest request_;
  const std::shared_ptr<OutputSink> sink_;
  StopStrings stops_;
  std::optional<Error> refused_;
  StubScript script_;
  PromptPlan plan_;
  std::uint64_t seed_ = 0;
  bool started_ = false;
  bool thinking_ = false;
  bool asked_to_answer_ = false;
  bool forced_ = false;
  std::int64_t resumed_ = 0;  // tokens of an earlier run
  std::int64_t prefill_step_ = 0;
  std::int64_t prefill_steps_ = 1;
  std::int64_t made_ = 0;
  std::int64_t loop_at_ = 0;
  Usage usage_;
  Clock::time_point due_ = Clock::now();
  Clock::time_point asked_ = {};
  Clock::time_point first_token_ = {};
};

}  // namespace

class StubGenerator::Loop {
 public:
  explicit Loop(std::int64_t n_ctx) : n_ctx_(n_ctx > 0 ? n_ctx : kDefaultCtx), born_(Clock::now()) {
    thread_ = std::thread([this] { run(); });
  }

  ~Loop() {
    post([this] { stopping_ = true; });
    thread_.join();
  }

  std::int64_t n_ctx() const { return n_ctx_; }
  double age_s() const { return Seconds(Clock::now() - born_).count(); }

  void post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    inbox_.push_back(std::move(task));
    wake_.notify_one();
  }

  // On the loop's thread.
  void add(GenerationId id, std::unique_ptr<Stream> stream) {
    streams_.emplace(id, std::move(stream));
  }
  void cancel(GenerationId id) {
    const auto it = streams_.find(id);
    if (it == streams_.end()) return;
    it->second->cancelled();
    streams_.erase(it);
  }
  void answer_now(GenerationId id) {
    const auto it = streams_.find(id);
    if (it != streams_.end()) it->second->answer_now();
  }

 private:
  void run() {
    while (!stopping_) {
      std::vector<std::function<void()>> tasks;
      {
        std::unique_lock lock(mutex_);
        const Clock::time_point next = next_due();
        const auto called = [this] { return !inbox_.empty(); };
        if (next == Clock::time_point::max())
          wake_.wait(lock, called);
        else
          wake_.wait_until(lock, next, called);
        tasks.swap(inbox_);
      }
      for (const auto& task : tasks)
        task();
      step_due();
    }
    for (const auto& [id, stream] : streams_)
      stream->cancelled();
  }

  Clock::time_point next_due() const {
    Clock::time_point next = Clock::time_point::max();
    for (const auto& [id, stream] : streams_)
      next = std::min(next, stream->due());
    return next;
  }

  /// One step of each that is due, so that all of them advance.
  void step_due() {
    const Clock::time_point t = Clock::now();
    for (auto it = streams_.begin(); it != streams_.end();) {
      const bool goes_on = it->second->due() > t || it->second->step();
      it = goes_on ? std::next(it) : streams_.erase(it);
    }
  }

  const std::int64_t n_ctx_;
  const Clock::time_point born_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> inbox_;  // guarded by mutex_
  // The loop's thread only.
  bool stopping_ = false;
  std::map<GenerationId, std::unique_ptr<Stream>> streams_;
  std::thread thread_;
};

StubGenerator::StubGenerator(std::int64_t n_ctx) : loop_(std::make_unique<Loop>(n_ctx)) {}
StubGenerator::~StubGenerator() = default;

void StubGenerator::plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) {
  loop_->post([n_ctx = loop_->n_ctx(), request = std::move(request), done = std::move(done)] {
    done(plan_of(request, n_ctx));
  });
}

void StubGenerator::tokenize(std::string text, bool,
                             std::function<void(Result<std::vector<std::int32_t>>)> done) {
  loop_->post([text = std::move(text), done = std::move(done)] { done(ids_of(text)); });
}

void StubGenerator::start(GenerationId id, GenerationRequest request,
                          std::shared_ptr<OutputSink> sink) {
  auto stream = std::make_shared<std::unique_ptr<Stream>>(
      std::make_unique<Stream>(std::move(request), std::move(sink), loop_->n_ctx()));
  loop_->post([loop = loop_.get(), id, stream] { loop->add(id, std::move(*stream)); });
}

void StubGenerator::cancel(GenerationId id) {
  loop_->post([loop = loop_.get(), id] { loop->cancel(id); });
}

void StubGenerator::answer_now(GenerationId id) {
  loop_->post([loop = loop_.get(), id] { loop->answer_now(id); });
}

GeneratorStatus StubGenerator::status() const {
  GeneratorStatus s;
  s.state = GeneratorState::ready;
  s.model = {"stub", "user", "", loop_->n_ctx(), "cpu"};
  s.pid = ::getpid();
  s.uptime_s = loop_->age_s();
  return s;
}

}  // namespace ponder::worker
