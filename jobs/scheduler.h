#pragma once
// Who runs next. Pure: the waiting, the running set, the limits and the clock in, picks out.
//
// Two lanes. Asks and chat turns have places of their own and go first: while one of them waits,
// no batch job is started. A batch job that has waited `ageing_ms` goes before every ask that came
// later, so a steady stream of asks cannot hold it back for longer; and batch jobs never take an
// interactive place, so they cannot hold asks back. Inside a lane the order is that of submission;
// a job that went back to the queue keeps its number.
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "jobs/job.h"

namespace ponder::jobs {

struct Waiting {
  Lane lane = Lane::batch;
  /// Submission: the job's number, then (for turns, which have none) the order of arrival.
  std::pair<std::int64_t, std::uint64_t> order;
  std::int64_t since_ms = 0;  ///< steady clock, when it began to wait
};

struct RunningCounts {
  int interactive = 0;
  int batch = 0;
};

struct Limits {
  int interactive = 2;
  int batch = 1;
  std::int64_t ageing_ms = 300'000;
};

/// Indexes into `waiting` in the order in which they would be started, all of them.
std::vector<std::size_t> order_of_start(const std::vector<Waiting>& waiting, const Limits& limits,
                                        std::int64_t now_ms);

/// Indexes into `waiting` of those to start now, in order.
std::vector<std::size_t> pick(const std::vector<Waiting>& waiting, RunningCounts running,
                              const Limits& limits, std::int64_t now_ms);

}  // namespace ponder::jobs
