#pragma once
// What goes and what stays. One step expires a small batch, so that it never holds the queue
// thread for long; the owner calls it again until nothing is left to do. Queue thread only.
#include <cstdint>
#include <string>

#include "engine/base/error.h"
#include "jobs/job_queue.h"
#include "jobs/store/job_store.h"

namespace ponder::jobs {

struct RetentionStep {
  std::int64_t expired = 0;
  std::int64_t dropped = 0;  ///< tombstones
  bool more = false;         ///< call again soon
};

/// Expires results that were read beyond the newest `keep_read`, unread ones beyond `keep_unread`
/// or older than `keep_unread_days`. Never a pinned, queued or running job.
Result<RetentionStep> retention_step(JobStore& store, const Options& options, std::int64_t now_ms);

/// The one line that an expired job keeps.
std::string summary_line(const JobRow& row);

}  // namespace ponder::jobs
