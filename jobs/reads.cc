// What callers ask of jobs that exist: envelopes, waits, pages, events, cancel.
#include <fmt/core.h>

#include <algorithm>

#include "engine/base/utf8.h"
#include "jobs/queue_actor.h"

namespace ponder::jobs {
namespace {

constexpr std::int64_t kMaxWaitMs = 24 * 3'600'000;
constexpr int kMaxPage = 1000;

Error about(const std::string& id, ErrorCode code, std::string message, std::string hint = {}) {
  Error error{code, std::move(message), std::move(hint)};
  error.job_id = id;
  return error;
}
}  // namespace

Result<JobRow> QueueActor::row_of(const std::string& id) {
  if (const auto found = running_.find(id); found != running_.end()) return found->second->row();
  TRY(std::optional<JobRow> row, store_->find(id));
  if (!row)
    return fail(about(id, ErrorCode::job_unknown, "there is no job with this id",
                      "list the jobs: ponder ps -a"));
  return std::move(*row);
}

Result<StoredText> QueueActor::text_of(const JobRow& row) {
  return store_->text(row);
}

std::int64_t QueueActor::position_of(const std::string& id) {
  std::vector<std::pair<std::int64_t, std::uint64_t>> turns;
  for (const auto& [call, turn] : waiting_turns_)
    turns.push_back(turn.order);
  return waiting_.position(id, turns, ageing_ms(), now());
}

json::object QueueActor::envelope_of(const JobRow& row, bool with_answer, const std::string& note) {
  EnvelopeView view;
  view.now_ms = clock_.wall_ms();
  view.steady_ms = now();
  view.note = note;
  const int places =
      row.lane == Lane::ask ? options_.max_running_interactive : options_.max_running_batch;
  if (const auto found = running_.find(row.id); found != running_.end()) {
    view.running = found->second.get();
    view.eta =
        times_.until_end(row.lane, row.effort_requested, view.running->run_ms(now()), 0, places);
  } else if (row.state == State::queued) {
    view.position = position_of(row.id);
    if (!engine_reason_.empty()) {
      view.waiting_for = "upstream";
      view.note = join_notes(view.note, engine_reason_);
    } else if (const auto missing = no_memory_.find(row.id); missing != no_memory_.end()) {
      view.waiting_for = "memory";
      view.note = join_notes(view.note, missing->second);
    }
    const auto same_lane = [&](const auto& r) { return r.second->row().lane == row.lane; };
    const bool full = std::count_if(running_.begin(), running_.end(), same_lane) >= places;
    view.eta = times_.until_end(row.lane, row.effort_requested, 0, *view.position - (full ? 0 : 1),
                                places);
  } else if (row.state == State::completed && with_answer &&
             row.answer_chars <= kInlineAnswerChars) {
    if (auto text = text_of(row)) {
      view.answer = text->text.of(Channel::answer);
    } else {
      view.note = join_notes(view.note, text.error().message);
    }
  }
  return envelope(row, view);
}

// --- envelopes and waits ------------------------------------------------------------------------

void QueueActor::get_now(CallId call, const std::string& id, const Look& look, EnvelopeDone done) {
  Result<JobRow> row = row_of(id);
  if (row && look.told) keep_for_its_caller(*row);
  const auto running = running_.find(id);
  const std::string phase = running == running_.end() ? "" : running->second->phase();
  const bool moved = row && look.seen && *look.seen != std::pair(row->state, phase);
  if (!row || is_terminal(row->state) || look.wait_ms <= 0 || moved || stopping_) {
    if (!calls_.close(call)) return;
    return row ? done(envelope_of(*row, true)) : done(fail(row.error()));
  }
  if (!calls_.is_open(call)) return;
  Waiter waiter;
  waiter.call = call;
  waiter.done = std::move(done);
  waiter.timer = thread_.after(std::min(look.wait_ms, kMaxWaitMs),
                               [this, id, call] { wait_ran_out(id, call); });
  waiters_[id].push_back(std::move(waiter));
  call_jobs_[call] = id;
}

void QueueActor::wait_ran_out(const std::string& id, CallId call) {
  const auto found = waiters_.find(id);
  if (found == waiters_.end()) return;
  auto& waiters = found->second;
  const auto waiter =
      std::find_if(waiters.begin(), waiters.end(), [&](const Waiter& w) { return w.call == call; });
  if (waiter == waiters.end()) return;
  Waiter due = std::move(*waiter);
  waiters.erase(waiter);
  if (waiters.empty()) waiters_.erase(found);
  call_jobs_.erase(call);
  Result<JobRow> row = row_of(id);
  if (row) keep_for_its_caller(*row);
  if (!calls_.close(call)) return;
  row ? due.done(envelope_of(*row, true)) : due.done(fail(row.error()));
}

/// From now on somebody can come back for an ask: it outlives the daemon like a batch job.
void QueueActor::keep_for_its_caller(JobRow& row) {
  if (row.lane != Lane::ask || row.told || is_terminal(row.state)) return;
  if (!stored(store_->mark_told(row.seq))) return;
  row.told = true;
  if (const auto r = running_.find(row.id); r != running_.end()) r->second->row().told = true;
  if (WaitingJob* waiting = waiting_.find(row.id)) waiting->row.told = true;
}

void QueueActor::wake(const std::string& id, const Error* unwritten) {
  const auto found = waiters_.find(id);
  if (found == waiters_.end()) return;
  Result<JobRow> row = row_of(id);
  const bool over = !row || is_terminal(row->state);
  std::vector<Waiter> due;
  std::erase_if(found->second, [&](Waiter& waiter) {
    if (unwritten ? !waiter.until_end : waiter.until_end && !over) return false;
    due.push_back(std::move(waiter));
    return true;
  });
  if (found->second.empty()) waiters_.erase(found);
  if (due.empty()) return;
  const Result<json::object> answer = unwritten ? Result<json::object>(fail(*unwritten))
                                      : row     ? Result<json::object>(envelope_of(*row, true))
                                                : fail(row.error());
  for (Waiter& waiter : due) {
    if (waiter.timer) thread_.cancel(*waiter.timer);
    call_jobs_.erase(waiter.call);
    if (calls_.close(waiter.call)) waiter.done(answer);
  }
}

// --- cancel -------------------------------------------------------------------------------------

void QueueActor::cancel_now(CallId call, const std::string& id, EnvelopeDone done) {
  Result<JobRow> row = row_of(id);
  if (!row) {
    if (calls_.close(call)) done(fail(row.error()));
    return;
  }
  if (row->state == State::queued) {
    if (const Result<void> ended = end_queued(id); !ended) {
      if (calls_.close(call)) done(fail(ended.error()));
      return;
    }
    row = row_of(id);
  } else if (const auto found = running_.find(id); found != running_.end()) {
    return end_running(*found->second, call, std::move(done));
  }
  if (!calls_.close(call)) return;
  row ? done(envelope_of(*row, true)) : done(fail(row.error()));
}

/// A waiting job becomes cancelled.
Result<void> QueueActor::end_queued(const std::string& id) {
  TRY(const JobRow row, row_of(id));
  Leave leave;
  leave.state = State::cancelled;
  leave.at_ms = clock_.wall_ms();
  StateChange change;
  const Result<bool> ended = store_->end_queued(row, leave, change);
  if (!stored(ended)) return fail(ended.error());
  waiting_.remove(id);
  refresh_status();
  announce_stored(id, row_of(id));
  schedule();
  return {};
}

/// A running job is asked to end as cancelled; `done` is called when its end is on disk.
void QueueActor::end_running(RunningJob& job, CallId call, EnvelopeDone done) {
  const std::string id = job.row().id;
  if (!job.leave) {
    stored(store_->request_cancel(job.row().seq));
    job.row().cancel_requested = true;
    give_up(job, Intent::user_cancel);
  }
  Waiter waiter;
  waiter.call = call;
  waiter.until_end = true;
  waiter.done = std::move(done);
  waiters_[id].push_back(std::move(waiter));
  call_jobs_[call] = id;
}

void QueueActor::announce_stored(const std::string& id, const Result<JobRow>& row) {
  if (row) return announce_stored(*row);
  streams_.fail(id, row.error());
  wake(id);
}

void QueueActor::announce_stored(const JobRow& row) {
  if (streams_.has(row.id)) {
    auto changes = store_->changes(row.seq);
    auto text = text_of(row);
    if (!changes || !text) {
      streams_.fail(row.id, changes ? text.error() : changes.error());
    } else {
      streams_.tell(row.id, *changes, text->text);
      if (is_terminal(row.state))
        streams_.end(row.id, EventStreams::position_of(*changes, text->text.size()),
                     [&] { return envelope_of(row, true); });
    }
  }
  wake(row.id);
  if (options_.on_end && is_terminal(row.state)) options_.on_end(row.id, row.state);
}

// --- lists, pages, events -----------------------------------------------------------------------

Result<ListPage> QueueActor::list_now(ListFilter filter) {
  const int limit = std::clamp(filter.limit, 1, kMaxPage);
  filter.limit = limit + 1;  // one more tells whether there are more
  TRY(const std::vector<JobRow> rows, store_->list(filter));
  ListPage page;
  for (const JobRow& row : rows) {
    if (static_cast<int>(page.jobs.size()) == limit) {
      page.next_before = std::string(page.jobs.back().at("job_id").as_string());
      break;
    }
    const auto live = running_.find(row.id);
    page.jobs.push_back(envelope_of(live != running_.end() ? live->second->row() : row, false));
    // Null where the row is older than the previews: its whole request would have to be read.
    const json::value* preview = row.facts.if_contains(kPreview);
    page.jobs.back()[kPreview] = preview ? *preview : json::value();
  }
  return page;
}

Result<ResultPage> QueueActor::result_now(const std::string& id, Part part, std::int64_t offset,
                                          std::int64_t limit) {
  TRY(const JobRow row, row_of(id));
  if (row.state == State::expired)
    return fail(
        about(id, ErrorCode::gone, "the job has expired: " + row.summary, "submit it again"));
  if (part == Part::answer && row.state != State::completed) {
    Error error = about(
        id, ErrorCode::not_completed,
        is_terminal(row.state)
            ? fmt::format("the job ended {}{}{}, so there is no whole answer", to_string(row.state),
                          row.reason == Reason::none ? "" : ": ", to_string(row.reason))
            : fmt::format("the job is {}, so there is no answer yet", to_string(row.state)),
        is_terminal(row.state)
            ? fmt::format("read what there is: ponder result --part partial {}", id)
            : fmt::format("wait for it: ponder wait {}", id));
    error.details["answer_chars"] = row.answer_chars;
    error.details["reasoning_chars"] = row.reasoning_chars;
    return fail(std::move(error));
  }
  if (offset < 0) {
    Error error = about(id, ErrorCode::bad_request, "\"offset\" must not be negative");
    error.param = "offset";
    return fail(std::move(error));
  }
  const Channel channel = part == Part::reasoning ? Channel::reasoning : Channel::answer;
  std::string text;
  ResultPage page;
  if (part == Part::request) {
    TRY(const std::string stored_request, store_->request(row.seq));
    TRY(StoredRequest request, decode_request(stored_request));
    const std::vector<Message>& messages = request.generation.chat.messages;
    const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                   [](const Message& m) { return m.role == "user"; });
    if (last != messages.rend()) text = last->content;
    page.seed = request.generation.sampling.seed;
  } else if (const auto live = running_.find(id); live != running_.end()) {
    text = live->second->text().of(channel);
  } else {
    TRY(const StoredText kept, text_of(row));
    text = kept.text.of(channel);
  }
  page.job_id = id;
  page.state = row.state;
  page.part = part;
  page.offset = offset;
  page.total_chars = count_code_points(text);
  const std::int64_t end =
      limit < 0 || limit > page.total_chars - std::min(offset, page.total_chars) ? page.total_chars
                                                                                 : offset + limit;
  page.truncated = end < page.total_chars;
  if (page.truncated) page.next_offset = end;
  if (offset < end) {
    const std::size_t from = byte_offset_of(text, offset);
    page.text =
        text.substr(from, byte_offset_of(std::string_view(text).substr(from), end - offset));
  }
  const bool whole =
      !page.truncated && (part == Part::answer || part == Part::partial) && is_terminal(row.state);
  if (whole && row.read_ms == 0 && stored(store_->mark_read(row.seq, clock_.wall_ms())))
    arm_retention(0);
  return page;
}

void QueueActor::events_now(CallId call, const std::string& id, std::int64_t after,
                            EventStreams::Event event, EventStreams::Failed failed) {
  const auto refuse = [&](const Error& error) {
    if (calls_.close(call)) failed(error);
  };
  Result<JobRow> row = row_of(id);
  if (!row) return refuse(row.error());
  if (!calls_.is_open(call)) return;
  if (const auto live = running_.find(id); live != running_.end()) {
    RunningJob& job = *live->second;
    streams_.add(call, id, after, job.changes(), std::move(event), std::move(failed));
    call_jobs_[call] = id;
    if (!job.must_cut()) streams_.tell(call, id, job.changes(), job.text());
    return;
  }
  auto changes = store_->changes(row->seq);
  if (!changes) return refuse(changes.error());
  Result<StoredText> text = row->state == State::expired ? StoredText{} : text_of(*row);
  if (!text) return refuse(text.error());
  streams_.add(call, id, after, *changes, std::move(event), std::move(failed));
  call_jobs_[call] = id;
  streams_.tell(call, id, *changes, text->text);
  if (!is_terminal(row->state)) return;
  call_jobs_.erase(call);
  streams_.end(id, EventStreams::position_of(*changes, text->text.size()),
               [&] { return envelope_of(*row, true); });
}

}  // namespace ponder::jobs
