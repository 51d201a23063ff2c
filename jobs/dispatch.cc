// Who runs, what the generator says of it, and how a job ends.
#include <fmt/core.h>

#include <algorithm>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "jobs/queue_actor.h"
#include "jobs/retention.h"
#include "jobs/verdict.h"

namespace ponder::jobs {
namespace {

constexpr std::size_t kFlushBytes = 4096;
constexpr std::int64_t kRetryMs = 500;        // for what the disk refused
constexpr std::int64_t kLoadingPollMs = 100;  // there is no signal for "ready"
constexpr std::int64_t kAgeingPollMs = 1000;
constexpr std::int64_t kTrialMs = 10'000;
constexpr std::int64_t kHoldMs = 50;  // after a job came back: lets the engine be replaced
constexpr std::int64_t kPrefillEventMs = 200;
constexpr std::int64_t kProgressEventMs = 1000;
constexpr std::int64_t kRetainMs = 60'000;

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
    on_delta({Channel::answer, fmt::format("<tool_call>\n{}\n</tool_call>", to_json(call)), {}});
  }
  void on_ended(const Ended& ended) override {
    door_->post([g = generation_, ended](QueueActor& a) { a.on_ended(g, ended); });
  }

 private:
  const std::shared_ptr<QueueActor::Door> door_;
  const GenerationId generation_;
};

/// Hands a turn's output straight on and tells the queue when its place is free.
class TurnSink final : public OutputSink {
 public:
  TurnSink(std::shared_ptr<QueueActor::Door> door, CallId turn, std::shared_ptr<OutputSink> inner)
      : door_(std::move(door)), turn_(turn), inner_(std::move(inner)) {}

  void on_started(const Started& started) override { inner_->on_started(started); }
  void on_prefill(const PrefillProgress& progress) override { inner_->on_prefill(progress); }
  void on_delta(const Delta& delta) override { inner_->on_delta(delta); }
  void on_tool_call(const ToolCallMade& call) override { inner_->on_tool_call(call); }
  void on_ended(const Ended& ended) override {
    inner_->on_ended(ended);
    door_->post([turn = turn_](QueueActor& a) { a.on_turn_ended(turn); });
  }

 private:
  const std::shared_ptr<QueueActor::Door> door_;
  const CallId turn_;
  const std::shared_ptr<OutputSink> inner_;
};
}  // namespace

// --- who runs -----------------------------------------------------------------------------------

void QueueActor::enqueue(JobRow row) {
  WaitingJob job;
  const std::int64_t waited = std::max<std::int64_t>(0, clock_.wall_ms() - row.created_ms);
  job.since_ms = now() - waited;
  last_seq_ = std::max(last_seq_, row.seq);
  const std::string id = row.id;
  job.row = std::move(row);
  waiting_[id] = std::move(job);
  refresh_status();
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
  std::vector<Waiting> waiting;
  std::vector<std::pair<std::string, CallId>> who;
  for (const auto& [id, job] : waiting_) {
    if (!idle && on_trial(job.row)) {
      trial_waits = true;
      no_batch = no_batch || job.row.lane == Lane::ask;
      continue;
    }
    waiting.push_back({job.row.lane, {job.row.seq, 0}, job.since_ms});
    who.emplace_back(id, 0);
  }
  for (const auto& [call, turn] : waiting_turns_) {
    waiting.push_back({Lane::ask, turn.order, turn.since_ms});
    who.emplace_back(std::string(), call);
  }
  RunningCounts counts;
  counts.interactive = static_cast<int>(running_turns_.size());
  for (const auto& [id, job] : running_)
    ++(job->row().lane == Lane::ask ? counts.interactive : counts.batch);
  for (const auto& [generation, lane] : detached_)
    ++(lane == Lane::ask ? counts.interactive : counts.batch);
  const Limits limits{options_.max_running_interactive, options_.max_running_batch,
                      static_cast<std::int64_t>(options_.ageing_s * 1000)};
  bool started = false;
  for (const std::size_t i : pick(waiting, counts, limits, now())) {
    const auto& [id, call] = who[i];
    const bool alone = !id.empty() && on_trial(waiting_.at(id).row);
    if ((alone && started) || (no_batch && waiting[i].lane == Lane::batch)) {
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

bool QueueActor::start_job(const std::string& id, const GeneratorStatus& engine) {
  StateChange change;
  {
    // Text stored so far lies before this change.
    const JobRow& row = waiting_.at(id).row;
    auto kept = store_->load_undamaged(row.seq);
    if (!kept) return false;
    change.text_bytes = kept->text.size();
  }
  auto claimed = store_->claim(id, instance_, clock_.wall_ms(), change);
  if (!stored(claimed)) return false;
  waiting_.erase(id);
  if (!*claimed) {
    log_error("a waiting job was not queued in the database");
    return true;
  }
  JobRow row = std::move(**claimed);
  auto kept = store_->load_undamaged(row.seq);
  auto changes = store_->changes(row.seq);
  Result<StoredRequest> request = store_->request(row.seq).and_then(
      [](const std::string& body) { return decode_request(body); });
  const GenerationId generation = ++next_generation_;
  note_model(row.facts, engine.model);
  note_build(row.facts, options_.build);
  row.note.clear();
  auto owned = std::make_unique<RunningJob>(
      std::move(row), generation, kept ? std::move(*kept) : StoredText{},
      changes ? std::move(*changes) : std::vector{change}, now());
  RunningJob& job = *owned;
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
  generator_.start(generation, std::move(request->generation),
                   std::make_shared<JobSink>(door_, generation));
  return true;
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
      return refuse(*sink, {ErrorCode::loading, "the daemon is stopping"});
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
  if (!posted && calls_.close(call)) refuse(*sink, {ErrorCode::loading, "the daemon is stopping"});
  return call;
}

void QueueActor::start_turn_now(CallId call, Turn turn) {
  const GenerationId generation = ++next_generation_;
  running_turns_[call] = generation;
  generator_.start(generation, std::move(turn.request),
                   std::make_shared<TurnSink>(door_, call, std::move(turn.sink)));
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
      end_waiting_turn(turn, Ended{Finish::cancelled, {}, {}});
    else if (const auto found = running_turns_.find(turn); found != running_turns_.end())
      generator_.cancel(found->second);
  });
}

void QueueActor::on_turn_ended(CallId turn) {
  calls_.close(turn);
  running_turns_.erase(turn);
  refresh_status();
  schedule();
  check_stopped();
}

// --- what the generator says --------------------------------------------------------------------

RunningJob* QueueActor::running(GenerationId generation) {
  const auto found = generations_.find(generation);
  if (found == generations_.end()) return nullptr;
  RunningJob* job = running_.at(found->second).get();
  return job->leave ? nullptr : job;  // decided: nothing changes it any more
}

void QueueActor::on_started(GenerationId generation, const Started& started) {
  RunningJob* job = running(generation);
  if (!job) return;
  job->take_started(started);
  tell_progress(*job);
  arm_flush(*job);  // the counts reach the row with the next write
}

void QueueActor::on_prefill(GenerationId generation, const PrefillProgress& progress) {
  RunningJob* job = running(generation);
  if (!job) return;
  job->take_prefill(progress);
  if (progress.done >= progress.total || now() - job->last_progress_ms >= kPrefillEventMs)
    tell_progress(*job);
}

void QueueActor::on_delta(GenerationId generation, const Delta& delta) {
  RunningJob* job = running(generation);
  if (!job) return;
  const Taken taken = job->take(delta);
  if (taken.differs) cut(*job);
  tell(*job);
  if (taken.phase_changed) {
    tell_progress(*job);
    wake(job->row().id);
  }
  if (job->unsaved_bytes() >= kFlushBytes) {
    flush(*job);
  } else {
    arm_flush(*job);
  }
}

void QueueActor::tell(RunningJob& job) {
  // Text that is about to be given up must not be mixed with what takes its place.
  if (!job.must_cut()) streams_.tell(job.row().id, job.changes(), job.text());
}

void QueueActor::tell_progress(RunningJob& job) {
  job.last_progress_ms = now();
  if (!streams_.has(job.row().id)) return;
  json::object data;
  data["phase"] = job.phase();
  data["prefill_done"] = job.prefill() ? json::value(job.prefill()->done) : json::value();
  data["prefill_total"] = job.prefill() ? json::value(job.prefill()->total) : json::value();
  data["reasoning_tokens"] = job.reasoning_tokens();
  data["answer_tokens"] = job.answer_tokens();
  streams_.progress(job.row().id, data);
}

// --- to the disk --------------------------------------------------------------------------------

void QueueActor::arm_flush(RunningJob& job) {
  if (job.flush_timer) return;
  job.flush_timer = thread_.after(options_.flush_ms, [this, generation = job.generation()] {
    RunningJob* due = running(generation);
    if (!due) return;
    due->flush_timer.reset();
    flush(*due);
  });
}

bool QueueActor::flush(RunningJob& job) {
  if (job.flush_timer) thread_.cancel(*job.flush_timer);
  job.flush_timer.reset();
  if (job.must_cut() && !cut(job)) {
    arm_flush(job);
    return false;
  }
  auto appended = store_->append(job.fence(), job.progress(now()));
  if (!stored(appended)) {
    // Nothing was written; the text stays in memory and goes with the next write.
    arm_flush(job);
    return false;
  }
  if (!*appended) {
    log_error("a running job is not ours any more; its generation is given up");
    generator_.cancel(job.generation());
    detached_[job.generation()] = job.row().lane;
    forget_running(job);
    return false;
  }
  job.saved();
  if (now() - job.last_progress_ms >= kProgressEventMs) tell_progress(job);
  return true;
}

bool QueueActor::cut(RunningJob& job) {
  StateChange change;
  change.text_bytes = job.kept_bytes();
  const std::string note =
      "the text came out differently this time (another build or machine); "
      "what was stored beyond this point was given up";
  const auto done = store_->cut(job.fence(), job.kept(now()), note, clock_.wall_ms(), change);
  if (!stored(done)) return false;
  if (!*done) return true;  // flush() finds out and gives it up
  job.cut_done();
  job.row().note = join_notes(job.row().note, "the text differs from an earlier attempt");
  job.add_change(std::move(change));
  tell(job);
  return true;
}

// --- how a job ends -----------------------------------------------------------------------------

void QueueActor::give_up(RunningJob& job, Intent intent) {
  if (job.leave) return;
  // A wish of the user outlasts all others; the first other one counts.
  if (job.intent == Intent::none || intent == Intent::user_cancel) job.intent = intent;
  if (job.end_timer) return;
  generator_.cancel(job.generation());
  job.end_timer = thread_.after(options_.end_grace_ms, [this, generation = job.generation()] {
    RunningJob* stuck = running(generation);
    if (!stuck) return;
    log_warn("a cancelled generation did not end in time");
    stuck->end_timer.reset();
    detached_[generation] = stuck->row().lane;
    end_generation(*stuck, Ended{Finish::cancelled, {}, {}});
  });
}

void QueueActor::on_ended(GenerationId generation, const Ended& ended) {
  if (detached_.erase(generation) != 0) return schedule();
  if (RunningJob* job = running(generation)) end_generation(*job, ended);
}

void QueueActor::end_generation(RunningJob& job, const Ended& ended) {
  cancel_timers(job);
  // A worker that died or was replaced said nothing whole: what did not come again still holds.
  const bool came_whole = ended.finish != Finish::worker_died &&
                          ended.finish != Finish::worker_killed && ended.finish != Finish::failed &&
                          ended.finish != Finish::cancelled;
  if (came_whole && job.take_end().differs) cut(job);
  tell(job);
  Usage usage = ended.usage;
  usage.reasoning_tokens = std::max(usage.reasoning_tokens, job.reasoning_tokens());
  usage.answer_tokens = std::max(usage.answer_tokens, job.answer_tokens());
  note_usage(job.row().facts, usage);
  if (ended.forced_answer) job.row().facts["forced_answer"] = true;
  job.stop_clock(now());
  job.leave = judge(job.row(), {ended.finish, ended.error, job.intent}, job.text(), job.schema,
                    options_.max_attempts);
  job.leave->note = join_notes(job.row().note, job.leave->note);
  job.leave->at_ms = clock_.wall_ms();
  write_end(job.row().id);
}

void QueueActor::write_end(std::string id) {  // a copy: the job that holds it goes
  RunningJob& job = *running_.at(id);
  StateChange change;
  const bool ready = !job.must_cut() || cut(job);
  Result<bool> left = true;
  if (ready) {
    left = store_->leave(job.fence(), job.progress(now()), job.text(), *job.leave, change);
    stored(left);
  }
  if (!ready || !left) {
    // Nobody is told an end that is not on disk. It is tried until the disk takes it.
    thread_.after(kRetryMs, [this, id] {
      if (running_.count(id) != 0) write_end(id);
    });
    return;
  }
  if (!*left) {
    log_error("the end of a job was not ours to write; it is given up");
    forget_running(job);
    return wake(id);
  }
  job.saved();
  job.add_change(change);
  tell(job);
  const JobRow before = job.row();
  const std::int64_t run_ms = job.run_ms(now());
  const auto changes = job.changes();
  const std::int64_t text_bytes = job.text().size();
  forget_running(job);
  if (change.state == State::queued) {
    auto row = store_->find(id);
    if (row && *row && (*row)->state == State::queued) enqueue(std::move(**row));
    hold_until_ms_ = now() + kHoldMs;
  } else {
    if (change.state == State::completed) times_.add(before.lane, before.effort_requested, run_ms);
    streams_.end(id, EventStreams::position_of(changes, text_bytes), [&] {
      auto row = row_of(id);
      return row ? envelope_of(*row, true) : json::object{{"job_id", id}};
    });
    arm_retention(kHoldMs);
  }
  wake(id);
  refresh_status();
  schedule();
  check_stopped();
}

void QueueActor::cancel_timers(RunningJob& job) {
  for (auto* timer : {&job.flush_timer, &job.deadline_timer, &job.end_timer}) {
    if (*timer) thread_.cancel(**timer);
    timer->reset();
  }
}

void QueueActor::forget_running(RunningJob& job) {
  cancel_timers(job);
  generations_.erase(job.generation());
  running_.erase(std::string(job.row().id));
  refresh_status();
}

// --- what goes ----------------------------------------------------------------------------------

void QueueActor::arm_retention(std::int64_t delay_ms) {
  if (retention_timer_) {
    if (retention_timer_->first <= now() + delay_ms) return;
    thread_.cancel(*retention_timer_);
  }
  retention_timer_ = thread_.after(delay_ms, [this] {
    retention_timer_.reset();
    retain();
  });
}

void QueueActor::retain() {
  const auto step = retention_step(*store_, options_, clock_.wall_ms());
  if (!step) {
    log_warn(fmt::format("retention: {}", step.error().message));
    return arm_retention(kRetainMs);
  }
  if (step->expired > 0 || step->dropped > 0) store_->vacuum_some();
  if (running_.empty() && !step->more) store_->checkpoint();
  arm_retention(step->more ? 1 : kRetainMs);
}

}  // namespace ponder::jobs
