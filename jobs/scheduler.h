#pragma once
// Who runs next. Pure: the waiting, the running set, the limits and the clock in, picks out.
//
// Two lanes. Asks and chat turns have places of their own and go first: while one of them waits,
// no batch job is started. A batch job that has waited `ageing_ms` goes before every ask that came
// later, so a steady stream of asks cannot hold it back for longer; and batch jobs never take an
// interactive place, so they cannot hold asks back. Inside a lane the order is that of submission;
// a job that went back to the queue keeps its number.
//
// Memory is shared by all. What has a place and does not fit beside those that run holds up what
// comes after it, so that smaller ones that came later cannot keep it waiting; but a batch job that
// other batch jobs leave no room holds up no ask. Alone everything fits.
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
  std::uint64_t bytes = 0;    ///< of memory that it takes; 0: not known, it is tried
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

/// The memory that is left.
struct Room {
  std::uint64_t free = UINT64_MAX;
  std::uint64_t beside_batch = UINT64_MAX;  ///< once the asks that run have ended
  bool idle = false;                        ///< nothing runs
};

/// Indexes into `waiting` in the order in which they would be started, all of them.
std::vector<std::size_t> order_of_start(const std::vector<Waiting>& waiting, const Limits& limits,
                                        std::int64_t now_ms);

/// Indexes into `waiting`.
struct Picks {
  std::vector<std::size_t> start;      ///< now, in order
  std::vector<std::size_t> no_memory;  ///< the first of a lane that has a place and does not fit
};
Picks pick(const std::vector<Waiting>& waiting, RunningCounts running, const Limits& limits,
           std::int64_t now_ms, Room room = {});

}  // namespace ponder::jobs
