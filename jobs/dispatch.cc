// What the generator says of a job, what of it reaches the disk, and how a job ends.
#include <fmt/core.h>

#include <algorithm>

#include "engine/base/log.h"
#include "jobs/queue_actor.h"
#include "jobs/retention.h"
#include "jobs/verdict.h"

namespace ponder::jobs {
namespace {
constexpr std::size_t kFlushBytes = 4096;
// Text that was told is lost to a power cut for less than a second. One sync took 4 ms.
constexpr std::int64_t kSyncMs = 500;
constexpr std::int64_t kRetryMs = 500;  // for what the disk refused
constexpr std::int64_t kSliceMs = 50;   // between two pieces of idle work
constexpr std::int64_t kHoldMs = 50;    // after a job came back: lets the engine be replaced
constexpr std::int64_t kPrefillEventMs = 200;
constexpr std::int64_t kProgressEventMs = 1000;
constexpr std::int64_t kRetainMs = 60'000;
}  // namespace

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

void QueueActor::on_delta(GenerationId generation, const Delta& delta, bool of_call) {
  RunningJob* job = running(generation);
  if (!job) return;
  const Taken taken = job->take(delta, of_call);
  if (taken.differs) cut(*job);
  tell(*job);
  if (taken.phase_changed) {
    tell_progress(*job);
    wake(job->row().id);
  }
  if (job->unsaved_bytes() >= job->refused_bytes + kFlushBytes) {
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
  const bool synced = now() - job.synced_ms >= kSyncMs;
  auto appended = store_->append(job.fence(), job.progress(now()), synced);
  job.refused_bytes = appended ? 0 : job.unsaved_bytes();
  if (!stored(appended)) {
    // Nothing was written; the text stays in memory and goes with the next write.
    arm_flush(job);
    return false;
  }
  if (!*appended) {
    log_error("a running job is not ours any more; its generation is given up");
    generator_.cancel(job.generation());
    detached_[job.generation()] = job.row().lane;
    give_up(job);
    return false;
  }
  job.saved();
  if (synced) job.synced_ms = now();
  if (!synced) arm_flush(job);  // also if no more text comes
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
  // Who cancels waits for the answer, so a worker that does not move is not waited for as long as
  // one that shall put its text down before a stop. Its place stays taken until it has ended.
  const int grace_ms =
      intent == Intent::user_cancel ? options_.cancel_grace_ms : options_.end_grace_ms;
  job.end_timer = thread_.after(grace_ms, [this, generation = job.generation()] {
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
                          ended.finish != Finish::cancelled && ended.finish != Finish::no_memory;
  if (came_whole && job.take_end().differs) cut(job);
  tell(job);
  Usage usage = ended.usage;
  usage.reasoning_tokens = std::max(usage.reasoning_tokens, job.reasoning_tokens());
  usage.answer_tokens = std::max(usage.answer_tokens, job.answer_tokens());
  note_usage(job.row().facts, usage);
  const std::vector<std::string> degraded = generator_.status().degraded;
  job.row().facts["degraded"] = json::array(degraded.begin(), degraded.end());
  if (ended.forced_answer) job.row().facts["forced_answer"] = true;
  job.memory_bytes = ended.finish == Finish::no_memory ? bytes_needed(ended) : 0;
  job.stop_clock(now());
  job.leave = judge(job.row(), {ended.finish, ended.error, job.intent}, job.text(), job.schema,
                    options_.max_attempts);
  if (job.leave->state == State::queued && ended.finish == Finish::failed && ended.error &&
      ended.error->code == ErrorCode::out_of_memory)
    job.row().facts[kRanOutOfMemory] = true;
  job.leave->note = join_notes(job.row().note, job.leave->note);
  job.leave->at_ms = clock_.wall_ms();
  write_end(job.row().id);
}

/// A job whose row takes no write of this daemon. Where the row was damaged the store itself has
/// ended it, or could not keep it at all, and the others go on; else another daemon has taken the
/// queue over.
void QueueActor::give_up(RunningJob& job) {
  const std::string id = job.row().id;
  forget_running(job);  // from here on its row is the stored one
  const auto row = row_of(id);
  const bool damaged = row ? row->state == State::failed && row->reason == Reason::storage
                           : row.error().code == ErrorCode::job_unknown;
  if (!damaged) options_.on_lost();
  announce_stored(id, row);
  schedule();
  check_stopped();
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
    // Nobody is told an end that is not on disk. It is tried until the disk takes it; a cancel that
    // waits for it hears why it waits in vain.
    const Error why = left ? Error{ErrorCode::storage, status().store_reason} : left.error();
    wake(id, &why);
    thread_.after(kRetryMs, [this, id] {
      if (running_.count(id) != 0) write_end(id);
    });
    return;
  }
  if (!*left) {
    log_error("the end of a job was not ours to write; it is given up");
    return give_up(job);
  }
  job.saved();
  job.add_change(change);
  tell(job);
  const JobRow before = job.row();
  const std::int64_t waits_since_ms = job.waits_since_ms;
  const std::int64_t run_ms = job.run_ms(now());
  const bool yielded = job.intent == Intent::yield;
  const std::uint64_t bytes = job.memory_bytes;
  const auto changes = job.changes();
  const std::int64_t text_bytes = job.text().size();
  forget_running(job);
  if (change.state == State::queued) {
    auto row = store_->find(id);
    if (row && *row && (*row)->state == State::queued) {
      // By its age it would go before the ask again for which it made room.
      enqueue(std::move(**row), yielded ? now() : waits_since_ms);
      waiting_.at(id).bytes = bytes;
      waiting_.at(id).yielded = yielded;
    }
    if (!yielded) hold_until_ms_ = now() + kHoldMs;
  } else {
    if (change.state == State::completed) times_.add(before.lane, before.effort_requested, run_ms);
    streams_.end(id, EventStreams::position_of(changes, text_bytes), [&] {
      auto row = row_of(id);
      return row ? envelope_of(*row, true) : json::object{{"job_id", id}};
    });
    arm_retention(kHoldMs);
    if (options_.on_end) options_.on_end(id, change.state);
  }
  refresh_status();
  wake(id);
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

/// A wall clock that jumps ahead while the daemon runs makes no result old: a day has passed when
/// the wall clock and the steady one since the start both say so.
std::int64_t QueueActor::retention_now() const {
  return std::min(clock_.wall_ms(), opened_wall_ms_ + (now() - opened_ms_));
}

void QueueActor::retain() {
  if (!is_owner()) return arm_retention(kRetainMs);
  const auto step = retention_step(*store_, options_, retention_now());
  if (!step) {
    log_warn(fmt::format("retention: {}", step.error().message));
    return arm_retention(kRetainMs);
  }
  if (step->expired > 0 || step->dropped > 0) store_->vacuum_some();
  const bool slices = store_->maintain(running_.empty() && !step->more);
  arm_retention(step->more ? 1 : slices ? kSliceMs : kRetainMs);
}

Result<std::vector<std::string>> QueueActor::prune_now(const Prune& prune) {
  std::vector<std::string> ids;
  std::vector<std::pair<std::int64_t, std::string>> summaries;
  ListFilter filter;
  filter.workspace = prune.workspace;
  filter.limit = 1000;
  const std::size_t most = prune.dry_run ? 1000 : 200;
  while (ids.size() < most) {
    TRY(const std::vector<JobRow> rows, store_->list(filter));
    for (const JobRow& row : rows) {
      filter.before = row.id;
      const bool may_go = is_terminal(row.state) && row.state != State::expired && !row.pinned &&
                          (row.read_ms != 0 || prune.unread);
      if (!may_go || ids.size() >= most) continue;
      ids.push_back(row.id);
      summaries.emplace_back(row.seq, summary_line(row));
    }
    if (static_cast<int>(rows.size()) < filter.limit) break;
  }
  if (prune.dry_run || ids.empty()) return ids;
  const Result<void> expired = store_->expire(summaries);
  if (!stored(expired)) return fail(expired.error());
  store_->vacuum_some();
  return ids;
}

}  // namespace ponder::jobs
