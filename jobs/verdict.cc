#include "jobs/verdict.h"

#include <fmt/core.h>

#include "jobs/schema_check.h"

namespace ponder::jobs {
namespace {

Leave back_to_queue(std::string note) {
  Leave leave;
  leave.note = std::move(note);
  return leave;
}

Leave ended(State state, std::string note = {}) {
  Leave leave;
  leave.state = state;
  leave.note = std::move(note);
  return leave;
}

/// Incomplete or failed, as the table of reasons has it.
Leave ended(Reason reason, std::string note = {}) {
  Leave leave = ended(*state_of(reason), std::move(note));
  leave.reason = reason;
  return leave;
}

Leave failed(Reason reason, Error error) {
  Leave leave = ended(reason);
  leave.error = std::move(error);
  return leave;
}

Leave stopped(const JobRow& row) {
  if (row.lane == Lane::batch || row.told) return back_to_queue("the daemon was stopped");
  return ended(State::interrupted, "the daemon was stopped; the partial text is kept");
}

Leave died(const JobRow& row, int max_attempts) {
  if (row.deaths + 1 < max_attempts) {
    Leave leave = back_to_queue("the engine process ended while it ran this job");
    leave.death = true;
    return leave;
  }
  Leave leave = failed(
      Reason::poison,
      {ErrorCode::engine_error,
       fmt::format("the engine process ended {} times while it ran this job", row.deaths + 1),
       "see `ponder doctor`; a shorter prompt or another model may do"});
  leave.death = true;
  return leave;
}

/// Beside others, or while something else took the memory, it may not have been this job's fault.
/// So it is tried once more, alone (QueueActor::on_trial).
Leave out_of_memory(const JobRow& row, const Error& error) {
  if (row.facts.contains(kRanOutOfMemory)) return failed(Reason::out_of_memory, error);
  return back_to_queue("the engine ran out of memory; the job is tried once more, alone");
}

Leave failed_with(const JobRow& row, const Error& error) {
  switch (error.code) {
    case ErrorCode::loading:
    case ErrorCode::device_lost:
    case ErrorCode::unreachable:
      return back_to_queue("the engine was not there: " + error.message);
    case ErrorCode::out_of_memory:
      return out_of_memory(row, error);
    case ErrorCode::storage:
      return failed(Reason::storage, error);
    case ErrorCode::model_missing:
      return failed(Reason::model_missing, error);
    case ErrorCode::bad_request:
    case ErrorCode::context_length_exceeded:
    case ErrorCode::too_large:
    case ErrorCode::unsupported_media:
      return failed(Reason::bad_request, error);
    default:
      return failed(Reason::engine_error, error);
  }
}

Leave completed(const JobText& text, const json::value& schema) {
  if (!schema.is_null()) {
    if (const auto fits = answer_fits_schema(schema, text.of(Channel::answer)); !fits)
      return ended(Reason::schema_invalid, fits.error().message);
  }
  return ended(State::completed);
}
}  // namespace

std::uint64_t bytes_needed(const Ended& ended) {
  if (!ended.error) return UINT64_MAX;
  const auto needed = ended.error->details.find("needed");
  return needed == ended.error->details.end() ? UINT64_MAX
                                              : static_cast<std::uint64_t>(needed->second);
}

Leave judge(const JobRow& row, const Ending& ending, const JobText& text, const json::value& schema,
            int max_attempts) {
  // Whatever came in between: cancelled stays cancelled.
  if (ending.intent == Intent::user_cancel) return ended(State::cancelled);
  const bool stopping = ending.intent == Intent::stop;
  switch (ending.finish) {
    case Finish::end_token:
    case Finish::stop_string:
      return completed(text, schema);
    case Finish::output_limit:
      return ended(Reason::output_limit, "the token budget or window was spent");
    case Finish::reasoning_exhausted:
      return ended(Reason::reasoning_exhausted, "the thinking spent its budget before an answer");
    case Finish::repetition:
      return ended(Reason::repetition, "the text began to repeat itself");
    case Finish::stream_lost:
      if (stopping) return stopped(row);
      return ended(Reason::stream_lost, "the output ended without an end");
    case Finish::stalled:
      return ended(Reason::stalled, "no token came for too long");
    case Finish::cancelled:
      if (ending.intent == Intent::deadline)
        return ended(Reason::deadline, "the deadline for running was reached");
      if (stopping) return stopped(row);
      if (ending.intent == Intent::yield)
        return back_to_queue("it makes room for an ask and goes on afterwards");
      return back_to_queue("the engine gave it up");
    case Finish::no_memory:
      return stopping ? stopped(row) : back_to_queue("there was no memory for it beside what ran");
    case Finish::worker_died:
      return stopping ? stopped(row) : died(row, max_attempts);
    case Finish::worker_killed:
      return stopping ? stopped(row) : back_to_queue("the engine process was ended from outside");
    case Finish::failed:
      break;
  }
  if (stopping) return stopped(row);
  return failed_with(row, ending.error.value_or(
                              Error{ErrorCode::engine_error, "the engine failed without saying why",
                                    "submit it again; the daemon's log may say more"}));
}

}  // namespace ponder::jobs
