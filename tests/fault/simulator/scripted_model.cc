#include "tests/fault/simulator/scripted_model.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdlib>

namespace ponder::simulator {
namespace {

// A token is its prompt and its place: text of one job in another would be seen.
constexpr std::int32_t kPrompts = 2000;
constexpr std::int32_t kPlaces = 100'000;
constexpr std::int32_t kClose = 500;
constexpr std::int32_t kReasoning = 1000;
constexpr std::int32_t kAnswer = 50'000;

std::uint64_t mix(std::uint64_t hash, std::string_view text) {
  for (const char c : text)
    hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash ^ (hash >> 29);
}
}  // namespace

Script Script::of(const GenerationRequest& request) {
  Script script;
  std::uint64_t hash = 14695981039346656037ull;
  for (const Message& message : request.chat.messages) {
    hash = mix(mix(hash, message.role), message.content);
    const auto at = message.content.find("[killer=");
    if (at != std::string::npos) script.killer_at_ = std::atoll(message.content.c_str() + at + 8);
  }
  script.prompt_ = hash;
  const bool thinks = ponder::thinks(request.chat.effort.value_or(Effort{}));
  script.reasoning_ = thinks ? 2 + static_cast<std::int64_t>(hash % 9) : 0;
  script.answer_ = 2 + static_cast<std::int64_t>((hash >> 8) % 14);
  return script;
}

bool Script::is_close(std::int32_t token) const {
  return token % kPlaces == kClose;
}
bool Script::is_reasoning(std::int32_t token) const {
  return token % kPlaces >= kReasoning && token % kPlaces < kAnswer;
}

std::optional<std::int32_t> Script::next(const std::vector<std::int32_t>& tokens,
                                         bool close) const {
  const auto base = static_cast<std::int32_t>(prompt_ % kPrompts) * kPlaces;
  if (tokens.empty()) return base + (thinks() ? (close ? kClose : kReasoning) : kAnswer);
  const std::int32_t last = tokens.back();
  const std::int32_t place = last % kPlaces;
  if (is_reasoning(last)) {
    const bool done = close || place - kReasoning + 1 >= reasoning_;
    return base + (done ? kClose : place + 1);
  }
  if (is_close(last)) return base + kAnswer;
  if (place - kAnswer + 1 >= answer_) return std::nullopt;
  return base + place + 1;
}

bool Script::could_say(const std::vector<std::int32_t>& tokens) const {
  std::vector<std::int32_t> so_far;
  for (const std::int32_t token : tokens) {
    if (next(so_far, false) != token && next(so_far, true) != token) return false;
    so_far.push_back(token);
  }
  return true;
}

std::string Script::text_of(std::int32_t token) const {
  if (is_close(token)) return {};
  const std::int32_t place = token % kPlaces;
  return is_reasoning(token) ? fmt::format("{:x}-r{} ", prompt_ & 0xfff, place - kReasoning)
                             : fmt::format("{:x}-é{} ", prompt_ & 0xfff, place - kAnswer);
}

bool Script::lags(std::int32_t token) const {
  return !is_close(token) && ((prompt_ >> (static_cast<unsigned>(token % kPlaces) % 40)) & 3) == 0;
}

std::string Script::reasoning_text(std::int64_t count) const {
  std::string out;
  for (std::int64_t i = 0; i < count; ++i)
    out += text_of(kReasoning + static_cast<std::int32_t>(i));
  return out;
}
std::string Script::answer_text() const {
  std::string out;
  for (std::int64_t i = 0; i < answer_; ++i)
    out += text_of(kAnswer + static_cast<std::int32_t>(i));
  return out;
}

bool Script::begins(const std::string& reasoning, const std::string& answer, bool whole) const {
  if (reasoning_text(reasoning_).compare(0, reasoning.size(), reasoning) != 0) return false;
  const std::string all = answer_text();
  if (whole ? all != answer : all.compare(0, answer.size(), answer) != 0) return false;
  if (answer.empty()) return true;
  for (std::int64_t count = 0; count <= reasoning_; ++count)  // closed after a whole word
    if (reasoning == reasoning_text(count)) return true;
  return false;
}

// --- the generator ------------------------------------------------------------------------------

void ScriptedModel::after(std::int64_t delay_ms, std::function<void()> task) {
  events_.emplace(std::pair{clock_.steady_ms() + delay_ms, next_event_++}, std::move(task));
}

std::optional<std::int64_t> ScriptedModel::next_due_ms() const {
  if (events_.empty()) return {};
  return events_.begin()->first.first;
}

void ScriptedModel::fire_due() {
  while (!events_.empty() && events_.begin()->first.first <= clock_.steady_ms()) {
    auto task = std::move(events_.begin()->second);
    events_.erase(events_.begin());
    task();
  }
}

void ScriptedModel::plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) {
  const auto answer = [this, refused = dice_.percent(habits_.refused_percent), done] {
    if (refused)
      return done(fail(ErrorCode::context_length_exceeded, "the prompt is longer than the window"));
    if (clock_.steady_ms() < ready_at_ms_)
      return done(fail(ErrorCode::loading, "the engine is loading"));
    done(PromptPlan{10, 1'000'000, 100'000, 100'000, 200'000, "medium", "template"});
  };
  (void)request;
  if (!dice_.percent(habits_.late_percent)) return answer();
  const int delay_ms = dice_.below(6000);
  if (delay_ms < 5000) after(delay_ms, answer);  // else it never comes
}

void ScriptedModel::tokenize(std::string, bool,
                             std::function<void(Result<std::vector<std::int32_t>>)> done) {
  done(std::vector<std::int32_t>{});
}

GeneratorStatus ScriptedModel::status() const {
  GeneratorStatus out;
  out.state = clock_.steady_ms() < ready_at_ms_ ? GeneratorState::loading : GeneratorState::ready;
  out.model = {"scripted", "user", "/nowhere", 1'000'000, "cpu"};
  out.restarts = restarts_;
  return out;
}

void ScriptedModel::start(GenerationId id, GenerationRequest request,
                          std::shared_ptr<OutputSink> sink) {
  Run run;
  run.id = id;
  run.script = Script::of(request);
  run.tokens = request.resume;
  run.request = std::move(request);
  run.sink = std::move(sink);
  for (const std::int32_t token : run.tokens) {
    const bool lags = run.script.lags(token);
    run.held = lags ? run.held + run.script.text_of(token) : std::string();
  }
  if (dice_.percent(habits_.fault_percent)) {
    constexpr Finish kFates[] = {Finish::stream_lost, Finish::stalled,       Finish::failed,
                                 Finish::worker_died, Finish::worker_killed, Finish::repetition};
    run.fate = kFates[dice_.below(6)];
    run.fate_at = run.tokens.size() + static_cast<std::size_t>(dice_.below(12));
  }
  run.deaf = dice_.percent(habits_.stubborn_percent);
  watcher_.run_started(run);
  runs_.emplace(id, std::move(run));
  after(dice_.below(300), [this, id] {
    const auto found = runs_.find(id);
    if (found == runs_.end()) return;
    if (clock_.steady_ms() < ready_at_ms_)
      return finish(id, Finish::failed, Error{ErrorCode::loading, "the engine is loading"});
    Started started;
    started.plan = {10, 1'000'000, 100'000, 100'000, 200'000, "medium", "template"};
    found->second.sink->on_started(started);
    found->second.sink->on_prefill({10, 10});
    if (repeats_after_resume && !found->second.request.resume.empty())
      tell(found->second, Channel::answer,
           found->second.script.text_of(found->second.request.resume.back()), {});
    after(dice_.below(2 * habits_.pace_ms), [this, id] { step(id); });
  });
}

void ScriptedModel::cancel(GenerationId id) {
  const auto found = runs_.find(id);
  if (found == runs_.end()) return;
  if (found->second.deaf) return;
  if (dice_.percent(50)) return finish(id, Finish::cancelled);
  found->second.cancelled = true;
  after(dice_.below(200), [this, id] { finish(id, Finish::cancelled); });
}

void ScriptedModel::answer_now(GenerationId id) {
  if (const auto found = runs_.find(id); found != runs_.end()) found->second.close_asked = true;
}

void ScriptedModel::tell(Run& run, Channel channel, std::string text,
                         std::vector<std::int32_t> tokens) {
  watcher_.run_told(run, channel, text);
  run.sink->on_delta(Delta{channel, std::move(text), std::move(tokens), {}});
}

void ScriptedModel::step(GenerationId id) {
  const auto found = runs_.find(id);
  if (found == runs_.end()) return;
  Run& run = found->second;
  const auto count = [&](bool reasoning) {
    return std::count_if(run.tokens.begin(), run.tokens.end(), [&](std::int32_t t) {
      return reasoning ? run.script.is_reasoning(t)
                       : !run.script.is_reasoning(t) && !run.script.is_close(t);
    });
  };
  for (int made = dice_.between(1, 3); made > 0; --made) {
    if (run.fate && run.tokens.size() >= run.fate_at) return own_fault(id);
    const auto at = static_cast<std::int64_t>(run.tokens.size());
    if (run.script.killer_at() && at >= *run.script.killer_at())
      return end_worker(Finish::worker_died, dice_.between(100, 1000), id);
    const bool closed = std::any_of(run.tokens.begin(), run.tokens.end(),
                                    [&](std::int32_t t) { return run.script.is_close(t); });
    const bool thinking = run.script.thinks() && !closed;
    bool close = thinking && run.close_asked;
    const Budgets& budgets = run.request.budgets;
    if (thinking && budgets.max_reasoning_tokens && count(true) >= *budgets.max_reasoning_tokens) {
      if (run.request.on_limit == OnLimit::stop) return finish(id, Finish::reasoning_exhausted);
      close = true;
    }
    const auto token = run.script.next(run.tokens, close);
    if (!token) return finish(id, Finish::end_token);
    const bool answer = !run.script.is_close(*token) && !run.script.is_reasoning(*token);
    if (answer && budgets.max_answer_tokens && count(false) >= *budgets.max_answer_tokens)
      return finish(id, Finish::output_limit);
    if (close) run.forced = true;
    run.tokens.push_back(*token);
    const Channel channel = answer ? Channel::answer : Channel::reasoning;
    std::string text = run.held + run.script.text_of(*token);
    const bool lags = run.script.lags(*token);
    run.held = lags ? std::move(text) : std::string();
    tell(run, channel, lags ? std::string() : std::move(text), {*token});
  }
  after(dice_.below(2 * habits_.pace_ms), [this, id] { step(id); });
}

void ScriptedModel::own_fault(GenerationId id) {
  const Finish fate = *runs_.at(id).fate;
  if (fate == Finish::worker_died || fate == Finish::worker_killed)
    return end_worker(fate, dice_.between(100, 1000), id);
  if (fate == Finish::stalled) {  // the worker is replaced
    finish(id, fate);
    return end_worker(Finish::worker_killed, dice_.between(100, 1000));
  }
  if (fate != Finish::failed) return finish(id, fate);
  constexpr ErrorCode kErrors[] = {ErrorCode::out_of_memory, ErrorCode::device_lost,
                                   ErrorCode::engine_error};
  const ErrorCode code = kErrors[dice_.below(3)];
  finish(id, fate, Error{code, "a fault of its own"});
  if (code == ErrorCode::device_lost) end_worker(Finish::worker_killed, dice_.between(100, 3000));
}

void ScriptedModel::finish(GenerationId id, Finish how, std::optional<Error> error) {
  auto node = runs_.extract(id);
  if (node.empty()) return;
  Run& run = node.mapped();
  // An end of the model's own brings out what was held back; one from outside does not.
  const bool own = how == Finish::end_token || how == Finish::output_limit ||
                   how == Finish::reasoning_exhausted || how == Finish::repetition;
  if (own && !run.held.empty()) {
    const bool reasoning = run.script.is_reasoning(run.tokens.back());
    tell(run, reasoning ? Channel::reasoning : Channel::answer, std::move(run.held), {});
  }
  Ended ended{how, {}, std::move(error), run.forced};
  watcher_.run_ended(run, ended);
  run.sink->on_ended(ended);
}

void ScriptedModel::end_worker(Finish how, std::int64_t loading_ms, GenerationId culprit) {
  culprit_ = culprit;
  ready_at_ms_ = clock_.steady_ms() + loading_ms;
  ++restarts_;
  while (!runs_.empty())
    finish(runs_.begin()->first, how);
}

void ScriptedModel::heal() {
  habits_ = {0, 0, 0, 0, habits_.pace_ms};
  for (auto& [id, run] : runs_) {
    run.deaf = false;
    run.fate.reset();
  }
}

}  // namespace ponder::simulator
