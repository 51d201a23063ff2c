// Who runs next, and how it is started.
#include <fmt/core.h>

#include <algorithm>
#include <tuple>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "jobs/queue_actor.h"
#include "jobs/verdict.h"

namespace ponder::jobs {
namespace {

constexpr std::int64_t kRetryMs = 500;        // for what the disk refused
constexpr std::int64_t kLoadingPollMs = 100;  // there is no signal for "ready"
constexpr std::int64_t kAgeingPollMs = 1000;
constexpr std::int64_t kTrialMs = 10'000;
constexpr std::int64_t kMemoryPollMs = 50;      // nobody tells when memory is given back
constexpr std::int64_t kYieldAgainMs = 60'000;  // what made room gets as long to itself

/// Carries what the generator says of a job to the queue thread.
class JobSink final : public OutputSink {
 public:
  JobSink(std::shared_ptr<QueueActor::Door> door, GenerationId generation)
      : door_(std::move(door)), generation_(generation) {}

  void on_started(const Started& started) override {
    door_->post([g = generation_, started](QueueActor& a) { a.on_started(g, started); });
  }
  void on_prefill(const PrefillProgress& progress) override {
    door_->post([g = generation_, progress](QueueActor& a) { a.on_prefill(g, progress); });
  }
  void on_delta(const Delta& delta) override {
    door_->post([g = generation_, delta](QueueActor& a) { a.on_delta(g, delta); });
  }
  void on_tool_call(const ToolCallMade& made) override {
    // Jobs offer no tools, so a call is something the model wrote: it stays part of the answer.
    json::object call;
    call["name"] = made.call.name;
    call["arguments"] = made.call.arguments;
    Delta delta{Channel::answer, fmt::format("<tool_call>\n{}\n</tool_call>", to_json(call)), {}};
    door_->post([g = generation_, delta](QueueActor& a) { a.on_delta(g, delta, true); });
  }
  void on_ended(const Ended& ended) override {
    door_->post([g = generation_, ended](QueueActor& a) { a.on_ended(g, ended); });
  }

 private:
  const std::shared_ptr<QueueActor::Door> door_;
  const GenerationId generation_;
};

/// Hands a turn's output straight on and tells the queue when its place is free. A turn for which
/// there is no memory yet goes back with its request; its reader hears nothing of it.
class TurnSink final : public OutputSink {
 public:
  TurnSink(std::shared_ptr<QueueActor::Door> door, CallId turn, GenerationRequest request,
           std::shared_ptr<OutputSink> inner)
      : door_(std::move(door)),
        turn_(turn),
        request_(std::make_shared<GenerationRequest>(std::move(request))),
        inner_(std::move(inner)) {}

  void on_started(const Started& started) override {
    request_.reset();
    inner_->on_started(started);
  }
  void on_prefill(const PrefillProgress& progress) override { inner_->on_prefill(progress); }
  void on_delta(const Delta& delta) override { inner_->on_delta(delta); }
  void on_tool_call(const ToolCallMade& call) override { inner_->on_tool_call(call); }
  void on_ended(const Ended& ended) override {
    if (ended.finish == Finish::no_memory && request_) return wait_again(ended);
    Ended told = ended;
    if (told.finish == Finish::no_memory) told.finish = Finish::failed;  // its text was told
    inner_->on_ended(told);
    door_->post([turn = turn_](QueueActor& a) { a.on_turn_ended(turn); });
  }

 private:
  void wait_again(const Ended& ended) {
    const bool waits = door_->post([turn = turn_, request = request_, inner = inner_,
                                    bytes = bytes_needed(ended)](QueueActor& a) {
      a.on_turn_refused(turn, std::move(*request), inner, bytes);
    });
    if (!waits) inner_->on_ended(Ended{Finish::cancelled, {}, {}});
  }

  const std::shared_ptr<QueueActor::Door> door_;
  const CallId turn_;
  std::shared_ptr<GenerationRequest> request_;  ///< until it has started
  const std::shared_ptr<OutputSink> inner_;
};

Error is_stopping() {
  return {ErrorCode::loading, "the daemon is stopping", "send the request again when it is back"};
}

std::string memory_note(std::uint64_t bytes, std::uint64_t free) {
  if (bytes == UINT64_MAX) return "it starts when nothing else runs";
  return fmt::format("it takes up to {} MiB of memory, and {} MiB are free beside what runs",
                     (bytes >> 20) + 1, free >> 20);
}
}  // namespace

// --- who runs -----------------------------------------------------------------------------------

/// `since_ms`: of a job that goes back, when it began to wait. Else only the wall clock knows.
/// refresh_status() after it.
void QueueActor::enqueue(JobRow row, std::optional<std::int64_t> since_ms) {
  WaitingJob job;
  const std::int64_t waited = std::max<std::int64_t>(0, clock_.wall_ms() - row.created_ms);
  job.since_ms = since_ms.value_or(now() - waited);
  last_seq_ = std::max(last_seq_, row.seq);
  job.row = std::move(row);
  waiting_.add(std::move(job));
}

void QueueActor::poll_later(std::int64_t delay_ms) {
  if (poll_timer_) {
    if (poll_timer_->first <= now() + delay_ms) return;
    thread_.cancel(*poll_timer_);
  }
  poll_timer_ = thread_.after(delay_ms, [this] {
    poll_timer_.reset();
    schedule();
  });
}

/// Its status, and engine_reason_ after it.
GeneratorStatus QueueActor::look_at_engine() {
  GeneratorStatus engine = generator_.status();
  engine_reason_.clear();
  if (engine.state == GeneratorState::loading)
    engine_reason_ = engine.reason.empty() ? "the engine is loading" : engine.reason;
  return engine;
}

/// A death of the engine counts for all jobs that ran, and one of them did it. So the last attempt
/// that a job has is made alone: then only the job that kills the engine is poison, and no other.
bool QueueActor::on_trial(const JobRow& row) const {
  if (row.facts.contains(kRanOutOfMemory)) return true;
  return row.deaths > 0 && row.deaths + 1 >= options_.max_attempts;
}

/// A running job is on trial until it has got well beyond the text at which the engine died.
bool QueueActor::trial_goes_on() {
  return std::any_of(running_.begin(), running_.end(), [this](const auto& entry) {
    RunningJob& job = *entry.second;
    if (!on_trial(job.row())) return false;
    if (!job.trial_ends_ms && job.is_beyond_stored_text()) job.trial_ends_ms = now() + kTrialMs;
    return !job.trial_ends_ms || now() < *job.trial_ends_ms;
  });
}

void QueueActor::schedule() {
  if (stopping_ || (waiting_.empty() && waiting_turns_.empty())) return;
  if (now() < hold_until_ms_) return poll_later(hold_until_ms_ - now());
  const GeneratorStatus engine = look_at_engine();
  if (engine.state == GeneratorState::loading) return poll_later(kLoadingPollMs);
  if (trial_goes_on()) return poll_later(kAgeingPollMs);
  // A failed engine stays failed as long as this daemon lives. Jobs are started nevertheless: each
  // ends at once as failed(model_missing), for nobody shall wait for what cannot come.

  const bool idle = running_.empty() && running_turns_.empty() && detached_.empty();
  bool trial_waits = false;
  bool no_batch = false;  // an ask on trial waits no longer than for the batch job that runs
  // One on trial that has come of age is passed by nothing that came later, but by asks while a
  // batch job runs: else a steady stream of them would never leave it alone.
  std::optional<std::pair<std::int64_t, std::uint64_t>> passed_by_none;
  for (const auto& [seq, job] : waiting_.suspects()) {
    if (idle || !on_trial(job->row)) continue;
    trial_waits = true;
    no_batch = no_batch || job->row.lane == Lane::ask;
    const std::pair<std::int64_t, std::uint64_t> order{seq, 0};
    if (now() - job->since_ms >= ageing_ms())
      passed_by_none = std::min(order, passed_by_none.value_or(order));
  }
  RunningCounts counts;
  counts.interactive = static_cast<int>(running_turns_.size());
  for (const auto& [id, job] : running_)
    ++(job->row().lane == Lane::ask ? counts.interactive : counts.batch);
  for (const auto& [generation, lane] : detached_)
    ++(lane == Lane::ask ? counts.interactive : counts.batch);
  const Limits limits{options_.max_running_interactive, options_.max_running_batch, ageing_ms()};
  const Room left = room(engine);
  // Of each lane as many as there are places, and one that finds none: no other can change a pick.
  std::vector<Waiting> waiting;
  std::vector<std::pair<std::string, CallId>> who;
  const auto may_start = [&](const WaitingJob& job) { return idle || !on_trial(job.row); };
  for (const auto& [lane, limit, taken] :
       {std::tuple{Lane::ask, limits.interactive, counts.interactive},
        std::tuple{Lane::batch, limits.batch, counts.batch}}) {
    const auto most = static_cast<std::size_t>(std::max(0, limit - taken)) + 1;
    for (const WaitingJob* job : waiting_.first(lane, most, may_start)) {
      const std::uint64_t bytes = job->bytes > 0 ? job->bytes : bytes_of(job->row, engine.memory);
      waiting.push_back({lane, {job->row.seq, 0}, job->since_ms, bytes});
      who.emplace_back(job->row.id, 0);
    }
  }
  for (const auto& [call, turn] : waiting_turns_) {
    waiting.push_back({Lane::ask, turn.order, turn.since_ms, turn.bytes});
    who.emplace_back(std::string(), call);
  }
  const Picks picks = pick(waiting, counts, limits, now(), left);
  no_memory_.clear();
  for (const std::size_t i : picks.no_memory) {
    if (!who[i].first.empty()) no_memory_[who[i].first] = memory_note(waiting[i].bytes, left.free);
    const bool is_ask = waiting[i].lane == Lane::ask;
    if (is_ask && picks.start.empty()) make_room(waiting[i].bytes, left.free, engine.memory);
    poll_later(kMemoryPollMs);
  }
  bool started = false;
  for (const std::size_t i : picks.start) {
    const auto& [id, call] = who[i];
    // One before it ended as soon as it began, and what that scheduled has started this one.
    if (id.empty() ? !waiting_turns_.contains(call) : !waiting_.contains(id)) continue;
    const bool alone = !id.empty() && on_trial(waiting_.at(id).row);
    const bool is_batch = waiting[i].lane == Lane::batch;
    const bool passes =
        passed_by_none && waiting[i].order > *passed_by_none && (is_batch || counts.batch == 0);
    if ((alone && started) || (no_batch && is_batch) || passes) {
      trial_waits = true;
      continue;
    }
    started = true;
    if (id.empty()) {
      auto turn = waiting_turns_.extract(call);
      start_turn_now(call, std::move(turn.mapped()));
    } else if (!start_job(id, engine)) {
      poll_later(kRetryMs);
      break;
    }
    if (alone) break;
  }
  if (trial_waits) poll_later(kAgeingPollMs);
  // A batch job may come of age while nothing else happens.
  if (counts.batch < limits.batch && !waiting_.empty()) poll_later(kAgeingPollMs);
  refresh_status();
}

Room QueueActor::room(const GeneratorStatus& engine) const {
  Room room;
  room.idle = running_.empty() && running_turns_.empty() && detached_.empty();
  if (engine.memory.budget == 0) return room;
  room.free = engine.memory.free;
  bool batch_runs = false;
  std::uint64_t batch = 0;
  for (const auto& [id, job] : running_) {
    const bool known = job->prefill().has_value();  // to the engine
    if (!known) room.free -= std::min(room.free, job->memory_bytes);
    if (job->row().lane == Lane::ask) continue;
    batch_runs = true;
    batch += bytes_of(job->row(), engine.memory);
  }
  if (batch_runs) room.beside_batch = engine.memory.budget - std::min(engine.memory.budget, batch);
  return room;
}

/// As the plan has counted it; 0 where there was none.
std::uint64_t QueueActor::bytes_of(const JobRow& row, const ContextMemory& memory) {
  const json::value* tokens = row.facts.if_contains("tokens");
  if (memory.budget == 0 || !tokens || !tokens->is_object()) return 0;
  const json::value* prompt = tokens->as_object().if_contains("prompt");
  const json::value* reserved = tokens->as_object().if_contains("reserved");
  if (!prompt || !prompt->is_int64() || !reserved || !reserved->is_int64()) return 0;
  return memory.need(prompt->as_int64() + reserved->as_int64());
}

/// A batch job goes back to the queue where an ask that has a place finds no memory beside it. It
/// goes on later after its tokens, from the state that the engine keeps. The one that came last
/// goes first; one that came back from there stays for a while, so that asks cannot keep it out.
void QueueActor::make_room(std::uint64_t bytes, std::uint64_t free, const ContextMemory& memory) {
  RunningJob* last = nullptr;
  bool others = !running_turns_.empty() || !detached_.empty();
  for (const auto& [id, job] : running_) {
    if (job->intent != Intent::none || job->leave) return;  // one is on its way out
    if (job->row().lane == Lane::ask || on_trial(job->row()) || now() < job->may_yield_ms) {
      others = true;
      continue;
    }
    const std::uint64_t held = bytes_of(job->row(), memory);
    free += std::min(held, UINT64_MAX - free);
    if (!last || job->row().seq > last->row().seq) last = job.get();
  }
  // Beside the others it would not fit even then.
  if (!last || (others && bytes > free)) return;
  give_up(*last, Intent::yield);
}

bool QueueActor::start_job(const std::string& id, const GeneratorStatus& engine) {
  if (!is_owner()) return false;
  StateChange change;
  const std::uint64_t bytes = bytes_of(waiting_.at(id).row, engine.memory);
  const bool yielded = waiting_.at(id).yielded;
  {
    // Text stored so far lies before this change.
    const JobRow& row = waiting_.at(id).row;
    auto kept = store_->load_undamaged(row.seq);
    if (!kept) return false;
    change.text_bytes = kept->text.size();
  }
  auto claimed = store_->claim(id, instance_, clock_.wall_ms(), change);
  if (!stored(claimed)) return false;
  const std::int64_t waits_since_ms = waiting_.at(id).since_ms;
  waiting_.remove(id);
  if (!*claimed) {
    log_error("a waiting job was not queued in the database");
    announce_stored(id, row_of(id));
    return true;
  }
  JobRow row = std::move(**claimed);
  auto kept = store_->load_undamaged(row.seq);
  if (kept && kept->damaged)
    if (auto mended = give_up_damaged(row, *kept); !mended) kept = fail(mended.error());
  auto changes = store_->changes(row.seq);
  Result<StoredRequest> request = store_->request(row.seq).and_then(
      [](const std::string& body) { return decode_request(body); });
  const GenerationId generation = ++next_generation_;
  const bool same_model = is_model_of(row, engine.model);
  Resumed resumed;
  if (request && kept) resumed = begin_of(*request, *kept, same_model);
  note_model(row.facts, engine.model);
  note_build(row.facts, options_.build);
  row.note.clear();
  auto owned = std::make_unique<RunningJob>(
      std::move(row), generation, kept ? std::move(*kept) : StoredText{}, resumed,
      changes ? std::move(*changes) : std::vector{change}, now());
  RunningJob& job = *owned;
  job.waits_since_ms = waits_since_ms;
  running_.emplace(id, std::move(owned));
  generations_.emplace(generation, id);
  tell(job);
  wake(id);
  if (!request || !kept || !changes) {
    end_generation(job, Ended{Finish::failed,
                              {},
                              Error{ErrorCode::storage, "the stored request could not be read",
                                    "submit it again; check the disk"}});
    return true;
  }
  if (!same_model && request->carried.chunks > 0) {
    end_generation(job, Ended{Finish::failed,
                              {},
                              Error{ErrorCode::model_missing,
                                    "the job goes on from the tokens of another model than the one "
                                    "that is loaded",
                                    "load that model, and go on with mode \"resume\""}});
    return true;
  }
  job.memory_bytes = bytes;
  if (yielded) job.may_yield_ms = now() + kYieldAgainMs;
  job.schema = std::move(request->schema);
  job.on_limit = request->generation.on_limit;
  if (job.row().deadline_ms > 0) {
    const std::int64_t left = job.row().deadline_ms - job.run_ms(now());
    job.deadline_timer = thread_.after(left, [this, generation] {
      RunningJob* late = running(generation);
      if (!late) return;
      late->deadline_timer.reset();
      // The answer that follows is bounded by its own budget.
      if (late->on_limit == OnLimit::answer) return generator_.answer_now(generation);
      give_up(*late, Intent::deadline);
    });
  }
  const bool answer_now = request->answer_now;
  if (request->forced_answer) job.row().facts["forced_answer"] = true;
  generator_.start(generation, std::move(request->generation),
                   std::make_shared<JobSink>(door_, generation));
  if (answer_now) generator_.answer_now(generation);
  return true;
}

/// Text after the last good chunk goes, and the history says so.
Result<void> QueueActor::give_up_damaged(const JobRow& row, const StoredText& kept) {
  StateChange change;
  change.text_bytes = kept.text.size();
  Progress none;
  none.next_chunk = kept.chunk_count;
  none.attempt = row.attempt;
  none.run_ms = row.run_ms;
  none.facts = row.facts;
  const Result<bool> cut = store_->cut({row.seq, row.id, row.claims, row.instance}, none,
                                       "stored text after this point was damaged and given up",
                                       clock_.wall_ms(), change);
  if (!stored(cut)) return fail(cut.error());
  return {};
}

/// The tokens that a job goes on after: all that are stored, else those of the job it goes on from.
/// They are left in the request.
Resumed QueueActor::begin_of(StoredRequest& request, const StoredText& kept, bool same_model) {
  const bool all = options_.resume_after_crash && same_model && !kept.tokens.empty();
  // Of a beginning that is damaged only what is whole can be gone on from.
  const bool whole = kept.chunk_count >= request.carried.chunks;
  if (all || !whole) {
    request.generation.resume = kept.tokens;
    return kept.of_tokens;
  }
  const Carried& carried = request.carried;
  const auto count =
      std::min<std::size_t>(static_cast<std::size_t>(carried.tokens()), kept.tokens.size());
  request.generation.resume.assign(kept.tokens.begin(),
                                   kept.tokens.begin() + static_cast<std::ptrdiff_t>(count));
  return carried;
}

CallId QueueActor::start_turn(GenerationRequest request, std::shared_ptr<OutputSink> sink) {
  const CallId call = calls_.open();
  auto shared = std::make_shared<GenerationRequest>(std::move(request));
  const auto refuse = [](OutputSink& to, Error error) {
    to.on_ended(Ended{Finish::failed, {}, std::move(error)});
  };
  const bool posted = thread_.post([this, call, shared, sink, refuse] {
    if (!calls_.is_open(call)) return;
    if (stopping_) {
      calls_.close(call);
      return refuse(*sink, is_stopping());
    }
    waiting_turns_.emplace(call, Turn{std::move(*shared), sink, {last_seq_, ++turn_count_}, now()});
    schedule();
    if (static_cast<int>(waiting_turns_.size()) > options_.max_turns_waiting &&
        waiting_turns_.count(call) != 0)
      end_waiting_turn(
          call, Ended{Finish::failed,
                      {},
                      Error{ErrorCode::queue_full,
                            fmt::format("{} requests wait already", options_.max_turns_waiting),
                            "try again in a few seconds"}});
    refresh_status();
  });
  if (!posted && calls_.close(call)) refuse(*sink, is_stopping());
  return call;
}

void QueueActor::start_turn_now(CallId call, Turn turn) {
  const GenerationId generation = ++next_generation_;
  running_turns_[call] = {generation, turn.order, turn.since_ms};
  auto sink = std::make_shared<TurnSink>(door_, call, turn.request, std::move(turn.sink));
  generator_.start(generation, std::move(turn.request), std::move(sink));
}

void QueueActor::end_waiting_turn(CallId call, const Ended& ended) {
  auto turn = waiting_turns_.extract(call);
  calls_.close(call);
  turn.mapped().sink->on_ended(ended);
  refresh_status();
}

void QueueActor::cancel_turn(CallId turn) {
  thread_.post([this, turn] {
    if (waiting_turns_.count(turn) != 0)
      return end_waiting_turn(turn, Ended{Finish::cancelled, {}, {}});
    const auto found = running_turns_.find(turn);
    if (found == running_turns_.end()) return;
    found->second.cancelled = true;
    generator_.cancel(found->second.generation);
  });
}

void QueueActor::on_turn_refused(CallId call, GenerationRequest request,
                                 std::shared_ptr<OutputSink> sink, std::uint64_t bytes) {
  const auto node = running_turns_.extract(call);
  CHECK(!node.empty());
  const RunningTurn& turn = node.mapped();
  waiting_turns_.emplace(
      call, Turn{std::move(request), std::move(sink), turn.order, turn.since_ms, bytes});
  if (stopping_ || turn.cancelled) {
    end_waiting_turn(call, Ended{Finish::cancelled, {}, {}});
    check_stopped();
    return schedule();
  }
  refresh_status();
  poll_later(kMemoryPollMs);
}

void QueueActor::on_turn_ended(CallId turn) {
  calls_.close(turn);
  running_turns_.erase(turn);
  refresh_status();
  schedule();
  check_stopped();
}

}  // namespace ponder::jobs
