#include "jobs/job_queue.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include "engine/base/check.h"
#include "engine/base/ids.h"
#include "engine/base/log.h"
#include "engine/base/sentence.h"
#include "jobs/queue_actor.h"
#include "jobs/store/rebuild.h"

namespace ponder::jobs {
namespace {

constexpr int kHistoryRows = 1000;
constexpr std::int64_t kProbeMs = 1000;

Error stopping_error() {
  return {ErrorCode::loading, "the daemon is stopping", "try again when it has started anew"};
}

Options sane(Options options) {
  options.max_running_batch = std::max(1, options.max_running_batch);
  options.max_running_interactive = std::max(1, options.max_running_interactive);
  options.max_attempts = std::max(1, options.max_attempts);
  options.flush_ms = std::max(1, options.flush_ms);
  return options;
}
}  // namespace

Result<std::unique_ptr<JobQueue>> JobQueue::open(Options options, Generator& generator,
                                                 const Clock& clock) {
  TRY(std::unique_ptr<JobStore> store, JobStore::open(options.database));
  const std::string instance = random_hex(16);
  TRY(JobStore::Recovered recovered, store->recover(instance, clock.wall_ms()));
  if (recovered.moved > 0)
    log_info(fmt::format("{} jobs of a daemon that died were moved on", recovered.moved));
  auto actor = std::make_unique<QueueActor>(sane(std::move(options)), generator, clock,
                                            std::move(store), instance);
  TRY_VOID(actor->begin(std::move(recovered.ended)));
  return std::unique_ptr<JobQueue>(std::move(actor));
}

bool QueueActor::Door::post(std::function<void(QueueActor&)> message) {
  const std::lock_guard lock(mutex);
  if (!actor) return false;
  QueueActor* target = actor;
  return target->thread_.post([target, message = std::move(message)] { message(*target); });
}

QueueActor::QueueActor(Options options, Generator& generator, const Clock& clock,
                       std::unique_ptr<JobStore> store, std::string instance)
    : options_(std::move(options)),
      generator_(generator),
      clock_(clock),
      instance_(std::move(instance)),
      door_(std::make_shared<Door>()),
      // Another user of the same generator has other numbers.
      next_generation_(random_u64() & ~std::uint64_t{0xffffffff}),
      store_(std::move(store)),
      thread_(clock, options_.executor) {
  door_->actor = this;
}

QueueActor::~QueueActor() {
  stop();
  {
    const std::lock_guard lock(door_->mutex);
    door_->actor = nullptr;
  }
  thread_.stop();
}

Result<void> QueueActor::begin(std::vector<std::pair<std::string, State>> ended) {
  TRY(const auto past, store_->history(kHistoryRows));
  for (auto job = past.rbegin(); job != past.rend(); ++job)
    times_.add(job->lane, job->effort, job->run_ms);
  // The clock may have gone back since the last daemon: ids sort by creation all the same.
  TRY(const std::string last_id, store_->last_id());
  continue_job_ids(last_id);
  TRY(std::vector<JobRow> rows, store_->live());
  for (JobRow& row : rows) {
    CHECK_MSG(row.state == State::queued, "a running row after recovery");
    enqueue(std::move(row));
  }
  refresh_status();
  thread_.start();
  thread_.post([this, ended = std::move(ended)] {
    if (options_.on_end)
      for (const auto& [id, state] : ended)
        options_.on_end(id, state);
    schedule();
    arm_retention(0);
  });
  return {};
}

template <class Done>
CallId QueueActor::ask(Done done, std::function<void(CallId, Done)> work) {
  const CallId call = calls_.open();
  auto shared = std::make_shared<Done>(std::move(done));
  const bool posted =
      thread_.post([call, shared, work = std::move(work)] { work(call, std::move(*shared)); });
  if (!posted && calls_.close(call)) (*shared)(fail(stopping_error()));
  return call;
}

CallId QueueActor::submit(JobSpec spec, std::function<void(Result<Submitted>)> done) {
  using Done = std::function<void(Result<Submitted>)>;
  auto shared = std::make_shared<ReadySpec>(make_ready(std::move(spec)));
  return ask<Done>(std::move(done), [this, shared](CallId call, Done d) {
    if (stopping_) {
      if (calls_.close(call)) d(fail(stopping_error()));
      return;
    }
    submit_now(call, std::move(*shared), std::move(d));
  });
}

CallId QueueActor::get(std::string id, Look look, EnvelopeDone done) {
  return ask<EnvelopeDone>(
      std::move(done), [this, id = std::move(id), look = std::move(look)](
                           CallId call, EnvelopeDone d) { get_now(call, id, look, std::move(d)); });
}

CallId QueueActor::list(ListFilter filter, std::function<void(Result<ListPage>)> done) {
  using Done = std::function<void(Result<ListPage>)>;
  return ask<Done>(std::move(done), [this, filter = std::move(filter)](CallId call, Done d) {
    Result<ListPage> page = list_now(filter);
    if (calls_.close(call)) d(std::move(page));
  });
}

CallId QueueActor::result(std::string id, Part part, std::int64_t offset, std::int64_t limit,
                          std::function<void(Result<ResultPage>)> done) {
  using Done = std::function<void(Result<ResultPage>)>;
  return ask<Done>(std::move(done), [=, this, id = std::move(id)](CallId call, Done d) {
    Result<ResultPage> page = result_now(id, part, offset, limit);
    if (calls_.close(call)) d(std::move(page));
  });
}

CallId QueueActor::cancel(std::string id, EnvelopeDone done) {
  return ask<EnvelopeDone>(std::move(done),
                           [this, id = std::move(id)](CallId call, EnvelopeDone d) {
                             cancel_now(call, id, std::move(d));
                           });
}

CallId QueueActor::remove(std::string id, std::function<void(Result<void>)> done) {
  using Done = std::function<void(Result<void>)>;
  return ask<Done>(std::move(done), [this, id = std::move(id)](CallId call, Done d) {
    Result<void> removed = [&]() -> Result<void> {
      TRY(const JobRow row, row_of(id));
      if (!is_terminal(row.state)) {
        Error error{ErrorCode::not_terminal, "the job has not ended yet",
                    fmt::format("cancel it first: ponder cancel {}", id)};
        error.job_id = id;
        return fail(std::move(error));
      }
      Result<void> gone = store_->remove(row.seq);
      stored(gone);
      return gone;
    }();
    if (calls_.close(call)) d(std::move(removed));
  });
}

CallId QueueActor::pin(std::string id, bool pinned, EnvelopeDone done) {
  return ask<EnvelopeDone>(std::move(done), [this, id = std::move(id), pinned](CallId call,
                                                                               EnvelopeDone d) {
    Result<json::object> out = [&]() -> Result<json::object> {
      TRY(JobRow row, row_of(id));
      if (row.state == State::expired)
        return fail(
            {ErrorCode::gone, "the job has expired: " + row.summary, "submit it again", {}, id});
      Result<void> written = store_->set_pinned(row.seq, pinned);
      if (!stored(written)) return fail(written.error());
      row.pinned = pinned;
      if (WaitingJob* job = waiting_.find(id)) job->row.pinned = pinned;
      if (const auto r = running_.find(id); r != running_.end()) r->second->row().pinned = pinned;
      return envelope_of(row, true);
    }();
    if (calls_.close(call)) d(std::move(out));
  });
}

CallId QueueActor::prune(Prune prune, std::function<void(Result<std::vector<std::string>>)> done) {
  using Done = std::function<void(Result<std::vector<std::string>>)>;
  return ask<Done>(std::move(done), [this, prune = std::move(prune)](CallId call, Done d) {
    Result<std::vector<std::string>> pruned = prune_now(prune);
    if (calls_.close(call)) d(std::move(pruned));
  });
}

CallId QueueActor::events(std::string id, std::int64_t after, std::function<void(JobEvent)> event,
                          std::function<void(Error)> failed) {
  const CallId call = calls_.open();
  const bool posted = thread_.post([=, this, id = std::move(id)] {
    if (stopping_) {
      if (calls_.close(call)) failed(stopping_error());
      return;
    }
    events_now(call, id, after, event, failed);
  });
  if (!posted && calls_.close(call)) failed(stopping_error());
  return call;
}

void QueueActor::forget(CallId call) {
  if (calls_.close(call)) thread_.post([this, call] { drop_call(call); });
}

void QueueActor::drop_call(CallId call) {
  const auto found = call_jobs_.find(call);
  if (found == call_jobs_.end()) return;
  const std::string id = found->second;
  call_jobs_.erase(found);
  streams_.drop_closed(id);
  const auto waiters = waiters_.find(id);
  if (waiters == waiters_.end()) return;
  std::erase_if(waiters->second, [&](const Waiter& waiter) {
    if (waiter.call != call) return false;
    if (waiter.timer) thread_.cancel(*waiter.timer);
    return true;
  });
  if (waiters->second.empty()) waiters_.erase(waiters);
}

void QueueActor::note_store(const Error* error) {
  bool changed = false;
  {
    const std::lock_guard lock(status_mutex_);
    changed = status_.store_ok != (error == nullptr);
    status_.store_ok = error == nullptr;
    status_.store_reason = error ? in_one_sentence(*error) : std::string();
  }
  if (!changed) return;
  if (!error) {
    log_info("the job database takes writes again");
    if (probe_timer_) thread_.cancel(*probe_timer_);
    probe_timer_.reset();
    thread_.post([this] { schedule(); });
    return;
  }
  log_error(fmt::format("the job database fails: {}", in_one_sentence(*error)));
  const auto probe = [this](const auto& self) -> void {
    probe_timer_ = thread_.after(kProbeMs, [this, self] {
      probe_timer_.reset();
      if (!stored(store_->probe())) self(self);
    });
  };
  if (!store_->sync_failed()) probe(probe);
}

/// Two daemons on one queue: the lock file of one was removed while it did not move, say, and
/// another took its jobs. Their rows are safe by the fence; what this one holds in memory is out of
/// date.
bool QueueActor::is_owner() {
  if (options_.is_owner()) return true;
  log_error("the lock is not this daemon's any more: another one may have its jobs");
  options_.on_lost();
  return false;
}

void QueueActor::refresh_status() {
  const std::lock_guard lock(status_mutex_);
  status_.running = static_cast<int>(running_.size() + running_turns_.size());
  status_.ask = static_cast<int>(waiting_.size(Lane::ask) + waiting_turns_.size());
  status_.batch = static_cast<int>(waiting_.size(Lane::batch));
  status_.limit = options_.max_queued;
  const auto most = static_cast<std::size_t>(std::max(1, options_.max_turns_waiting));
  status_.turns_full = waiting_turns_.size() >= most;
}

QueueStatus QueueActor::status() const {
  QueueStatus out;
  {
    const std::lock_guard lock(status_mutex_);
    out = status_;
  }
  out.store_note = damage_note(options_.database);
  if (out.store_note.empty()) out.store_note = store_->start_note();
  out.stuck_ms = thread_.busy_ms();
  struct statvfs s {};
  if (::statvfs(options_.database.parent_path().c_str(), &s) == 0)
    out.free_bytes = static_cast<std::int64_t>(s.f_bavail) * static_cast<std::int64_t>(s.f_frsize);
  return out;
}

void QueueActor::reconfigure(const Options& options) {
  thread_.post([this, next = sane(options)] {
    for (auto field :
         {&Options::max_queued, &Options::max_turns_waiting, &Options::max_running_batch,
          &Options::max_running_interactive, &Options::max_attempts, &Options::keep_read,
          &Options::keep_unread, &Options::keep_unread_days})
      options_.*field = next.*field;
    options_.ageing_s = next.ageing_s;
    refresh_status();
    arm_retention(0);
    schedule();
  });
}

void QueueActor::stop() {
  const std::lock_guard lock(stop_mutex_);
  auto stopped = std::make_shared<std::promise<void>>();
  if (thread_.post([this, stopped] { begin_stop(stopped); })) thread_.wait(stopped->get_future());
  thread_.stop();
}

void QueueActor::begin_stop(std::shared_ptr<std::promise<void>> stopped) {
  stopping_ = true;
  stopped_ = std::move(stopped);
  while (!waiting_turns_.empty())
    end_waiting_turn(waiting_turns_.begin()->first, Ended{Finish::cancelled, {}, {}});
  auto pending = std::move(pending_submits_);
  pending_submits_.clear();
  for (auto& [number, submit] : pending) {
    thread_.cancel(submit.timer);
    if (calls_.close(submit.call)) submit.done(fail(stopping_error()));
  }
  for (const auto& [call, turn] : running_turns_)
    generator_.cancel(turn.generation);
  std::vector<RunningJob*> jobs;
  for (const auto& [id, job] : running_)
    jobs.push_back(job.get());
  for (RunningJob* job : jobs)
    give_up(*job, Intent::stop);
  // give_up() ends each job after the same grace; one step later nothing is left to wait for.
  thread_.after(options_.end_grace_ms + 200, [this] { end_stop(); });
  check_stopped();
}

void QueueActor::check_stopped() {
  if (stopping_ && stopped_ && running_.empty() && running_turns_.empty()) end_stop();
}

void QueueActor::end_stop() {
  if (!stopped_) return;
  if (!running_.empty())
    log_error(fmt::format("{} jobs could not be written down; the next start moves them on",
                          running_.size()));
  while (!waiters_.empty()) {
    const std::string id = waiters_.begin()->first;
    std::vector<Waiter> waiters = std::move(waiters_.begin()->second);
    waiters_.erase(waiters_.begin());
    auto row = row_of(id);
    for (Waiter& waiter : waiters)
      if (calls_.close(waiter.call))
        waiter.done(row ? Result<json::object>(envelope_of(*row, true)) : fail(row.error()));
  }
  streams_.fail_all(stopping_error());
  store_->checkpoint();
  const auto stopped = std::move(stopped_);
  stopped->set_value();
}

}  // namespace ponder::jobs
