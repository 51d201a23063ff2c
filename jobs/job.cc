#include "jobs/job.h"

#include <array>
#include <utility>

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

constexpr std::array<std::pair<Reason, std::string_view>, 14> kReasons{{
    {Reason::none, ""},
    {Reason::output_limit, "output_limit"},
    {Reason::reasoning_exhausted, "reasoning_exhausted"},
    {Reason::stream_lost, "stream_lost"},
    {Reason::deadline, "deadline"},
    {Reason::repetition, "repetition"},
    {Reason::schema_invalid, "schema_invalid"},
    {Reason::stalled, "stalled"},
    {Reason::engine_error, "engine_error"},
    {Reason::out_of_memory, "out_of_memory"},
    {Reason::storage, "storage"},
    {Reason::bad_request, "bad_request"},
    {Reason::model_missing, "model_missing"},
    {Reason::poison, "poison"},
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

template <class Table, class Value>
std::string_view word_of(const Table& table, Value value) {
  for (const auto& [known, word] : table)
    if (known == value) return word;
  return "";
}
}  // namespace

std::string_view to_string(State state) {
  return word_of(kStates, state);
}
std::string_view to_string(Reason reason) {
  return word_of(kReasons, reason);
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
  for (const auto& [reason, known] : kReasons)
    if (known == word) return reason;
  return std::nullopt;
}

bool is_terminal(State state) {
  return state != State::queued && state != State::running;
}

bool is_legal(State from, State to) {
  for (const auto& [a, b] : kMoves)
    if (a == from && b == to) return true;
  return false;
}

}  // namespace ponder::jobs
