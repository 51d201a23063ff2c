#include "clients/cli/exit_codes.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace ponder::cli {
namespace {
struct StateCode {
  std::string_view state;
  int code;
  bool final;
};
constexpr std::array<StateCode, 8> kStates{{
    {"queued", kNotYet, false},
    {"running", kNotYet, false},
    {"completed", kDone, true},
    {"incomplete", kIncomplete, true},
    {"failed", kFailed, true},
    {"cancelled", kCancelled, true},
    {"interrupted", kCancelled, true},
    {"expired", kNoSuchJob, true},
}};
}  // namespace

int exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_request:
    case ErrorCode::context_length_exceeded:
    case ErrorCode::unauthorized:
    case ErrorCode::forbidden:
    case ErrorCode::not_found:
    case ErrorCode::idempotency_mismatch:
    case ErrorCode::too_large:
    case ErrorCode::unsupported_media:
      return kUsage;
    case ErrorCode::not_completed:  // the commands refine it by the job's state
    case ErrorCode::not_terminal:
      return kNotYet;
    case ErrorCode::job_unknown:
    case ErrorCode::gone:
      return kNoSuchJob;
    case ErrorCode::queue_full:
    case ErrorCode::loading:
      return kTryLater;
    case ErrorCode::storage:
      return kStorage;
    case ErrorCode::unreachable:
    case ErrorCode::timed_out:  // a daemon that does not answer; `wait` has its own bound
    case ErrorCode::stream_lost:
      return kUnreachable;
    case ErrorCode::cancelled:
      return kInterrupted;
    case ErrorCode::model_missing:
    case ErrorCode::out_of_memory:
    case ErrorCode::device_lost:
    case ErrorCode::engine_error:
    case ErrorCode::interrupted:
    case ErrorCode::internal:
      return kFailed;
  }
  return kFailed;
}

int exit_code_of_state(std::string_view state) {
  for (const StateCode& known : kStates)
    if (known.state == state) return known.code;
  return kFailed;
}

bool is_final_state(std::string_view state) {
  for (const StateCode& known : kStates)
    if (known.state == state) return known.final;
  return false;
}

int worse(int a, int b) {
  constexpr std::array<int, 3> order{kFailed, kIncomplete, kCancelled};
  const auto rank = [&](int code) {
    if (code == kDone) return std::ptrdiff_t{100};
    return std::distance(order.begin(), std::find(order.begin(), order.end(), code));
  };
  return rank(b) < rank(a) ? b : a;
}

}  // namespace ponder::cli
