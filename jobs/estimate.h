#pragma once
// When a job may be done, from how long earlier ones ran. Pure; owned by the queue thread.
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "jobs/job.h"

namespace ponder::jobs {

struct Estimate {
  double p50_s = 0;
  double p90_s = 0;
};

class RunTimes {
 public:
  /// A completed job, the newest last.
  void add(Lane lane, const std::string& effort, std::int64_t run_ms);

  /// Seconds until the end of a job of this kind that has run for `run_ms` and still has
  /// `ahead` jobs before it on `places` places; nullopt without history of its kind. The median
  /// and the 90th percentile of the last 100 running times, times the rounds to wait.
  std::optional<Estimate> until_end(Lane lane, const std::string& effort, std::int64_t run_ms,
                                    std::int64_t ahead, int places) const;

 private:
  std::map<std::pair<Lane, std::string>, std::deque<std::int64_t>> kinds_;
};

}  // namespace ponder::jobs
