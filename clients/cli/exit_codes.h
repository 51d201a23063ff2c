#pragma once
// The exit codes of `ponder`, the one place that knows them. Pure.
#include <string_view>

#include "engine/base/error.h"

namespace ponder::cli {

enum ExitCode : int {
  kDone = 0,    ///< done; the daemon is ready or busy
  kFailed = 1,  ///< the job failed
  kUsage = 2,   ///< a wrong command line, or a request that the daemon refused
  kNotYet = 3,  ///< the job is not finished, the daemon is not ready
  kNoSuchJob = 4,
  kIncomplete = 5,    ///< cut; what it wrote of an answer or thinking is kept
  kCancelled = 6,     ///< cancelled or interrupted
  kUnreachable = 69,  ///< no daemon
  kStorage = 74,      ///< the disk or database refused, or our own output could not be written
  kTryLater = 75,     ///< the queue is full, the model is loading
  kWaitTimedOut = 124,
  kInterrupted = 130,  ///< Ctrl-C; the job goes on
};

int exit_code_of(ErrorCode code);
/// Of a job's state; an expired one counts as gone.
int exit_code_of_state(std::string_view state);
/// Whether a job in this state never changes again.
bool is_final_state(std::string_view state);
/// Of several jobs: the first of 1, 5, 6 that occurs, else the other one that is not 0.
int worse(int a, int b);

}  // namespace ponder::cli
