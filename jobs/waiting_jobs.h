#pragma once
// The jobs that wait, by id and in the order of their lanes, so that what is asked at each submit
// and start costs no more of a hundred thousand than of ten: who comes next, how many there are,
// and at which place a job stands. The order itself is that of jobs/scheduler.h.
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jobs/scheduler.h"
#include "jobs/store/job_store.h"

namespace ponder::jobs {

struct WaitingJob {
  JobRow row;
  std::int64_t since_ms = 0;  ///< steady
  std::uint64_t bytes = 0;    ///< of memory, as the engine has said; 0: as it was planned
  bool yielded = false;       ///< it ran and made room for an ask
};

/// Queue thread only. References hold until the job is removed.
class WaitingJobs {
 public:
  /// Once for each job.
  WaitingJob& add(WaitingJob job);
  void remove(const std::string& id);
  WaitingJob* find(const std::string& id);
  WaitingJob& at(const std::string& id) { return jobs_.at(id); }
  bool contains(const std::string& id) const { return jobs_.count(id) != 0; }

  bool empty() const { return jobs_.empty(); }
  std::size_t size() const { return jobs_.size(); }
  std::size_t size(Lane lane) const { return in(lane).size(); }

  /// Up to `count` of a lane by submission, of those that `may`.
  template <class May>
  std::vector<const WaitingJob*> first(Lane lane, std::size_t count, May may) const {
    std::vector<const WaitingJob*> found;
    for (const auto& [seq, job] : in(lane)) {
      if (found.size() >= count) break;
      if (may(*job)) found.push_back(job);
    }
    return found;
  }
  /// Those that an engine died under or ran out of memory under, by submission.
  const std::set<std::pair<std::int64_t, const WaitingJob*>>& suspects() const { return suspects_; }

  /// The place of a job, from 1, among all that wait, `turns` included; 1 if it does not wait. As
  /// order_of_start() has it.
  std::int64_t position(const std::string& id,
                        const std::vector<std::pair<std::int64_t, std::uint64_t>>& turns,
                        std::int64_t ageing_ms, std::int64_t now_ms);

 private:
  using Order = std::deque<std::pair<std::int64_t, WaitingJob*>>;  // sorted by seq
  const Order& in(Lane lane) const { return lane == Lane::ask ? asks_ : batch_; }
  std::size_t aged_ahead(std::int64_t ageing_ms, std::int64_t now_ms);

  std::unordered_map<std::string, WaitingJob> jobs_;
  Order asks_, batch_;
  std::set<std::pair<std::int64_t, const WaitingJob*>> suspects_;
  /// Batch jobs that had not come of age when this was last asked: by submission, and by since_ms.
  std::set<std::int64_t> young_;
  std::set<std::pair<std::int64_t, std::int64_t>> young_since_;
  std::int64_t ageing_ms_ = INT64_MAX;  ///< that they were held against; all are young at first
};

}  // namespace ponder::jobs
