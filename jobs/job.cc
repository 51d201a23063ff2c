#include "jobs/job.h"

#include <array>
#include <utility>

#include "engine/base/check.h"

namespace ponder::jobs {
namespace {

constexpr std::array<std::pair<State, std::string_view>, 8> kStates{{
    {State::queued, "queued"},
    {State::running, "running"},
    {State::completed, "completed"},
    {State::incomplete, "incomplete"},
    {State::failed, "failed"},
    {State::cancelled, "cancelled"},
    {State::interrupted, "interrupted"},
    {State::expired, "expired"},
}};

struct ReasonRow {
  Reason reason;
  std::string_view word;
  std::optional<State> of;  ///< the one state that it explains
};
/// A job that is incomplete or failed has one of its state's, every other none; a CHECK of
/// 0001_jobs.sql holds the same pairs, so a new one needs a migration. In the order of the enum.
constexpr std::array<ReasonRow, static_cast<std::size_t>(Reason::count_)> kReasons{{
    {Reason::none, "", std::nullopt},
    {Reason::output_limit, "output_limit", State::incomplete},
    {Reason::reasoning_exhausted, "reasoning_exhausted", State::incomplete},
    {Reason::stream_lost, "stream_lost", State::incomplete},
    {Reason::deadline, "deadline", State::incomplete},
    {Reason::repetition, "repetition", State::incomplete},
    {Reason::schema_invalid, "schema_invalid", State::incomplete},
    {Reason::stalled, "stalled", State::incomplete},
    {Reason::engine_error, "engine_error", State::failed},
    {Reason::out_of_memory, "out_of_memory", State::failed},
    {Reason::storage, "storage", State::failed},
    {Reason::bad_request, "bad_request", State::failed},
    {Reason::model_missing, "model_missing", State::failed},
    {Reason::poison, "poison", State::failed},
}};

/// Every legal move. The trigger job_legal_move of 0001_jobs.sql holds the same pairs.
constexpr std::array<std::pair<State, State>, 14> kMoves{{
    {State::queued, State::running},
    {State::queued, State::cancelled},
    {State::queued, State::failed},
    {State::running, State::queued},
    {State::running, State::completed},
    {State::running, State::incomplete},
    {State::running, State::failed},
    {State::running, State::cancelled},
    {State::running, State::interrupted},
    {State::completed, State::expired},
    {State::incomplete, State::expired},
    {State::failed, State::expired},
    {State::cancelled, State::expired},
    {State::interrupted, State::expired},
}};

const ReasonRow& row_of(Reason reason) {
  const auto index = static_cast<std::size_t>(reason);
  CHECK(index < kReasons.size() && kReasons[index].reason == reason);
  return kReasons[index];
}
}  // namespace

std::string_view to_string(State state) {
  for (const auto& [known, word] : kStates)
    if (known == state) return word;
  return "";
}
std::string_view to_string(Reason reason) {
  return row_of(reason).word;
}
std::string_view to_string(Lane lane) {
  return lane == Lane::ask ? "ask" : "batch";
}

std::optional<State> state_from(std::string_view word) {
  for (const auto& [state, known] : kStates)
    if (known == word) return state;
  return std::nullopt;
}

std::optional<Reason> reason_from(std::string_view word) {
  for (const ReasonRow& row : kReasons)
    if (row.word == word) return row.reason;
  return std::nullopt;
}

bool is_terminal(State state) {
  return state != State::queued && state != State::running;
}

std::optional<State> state_of(Reason reason) {
  return row_of(reason).of;
}

bool is_legal(State state, Reason reason) {
  if (state == State::expired) return true;  // it keeps the one it ended with
  if (state == State::incomplete || state == State::failed) return state_of(reason) == state;
  return reason == Reason::none;
}

bool is_legal(State from, State to) {
  for (const auto& [a, b] : kMoves)
    if (a == from && b == to) return true;
  return false;
}

}  // namespace ponder::jobs
