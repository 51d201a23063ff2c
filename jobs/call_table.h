#pragma once
// The calls whose callers still want to hear. Thread-safe: forget() takes effect at once, on any
// thread; a callback that has begun is not interrupted.
#include <atomic>
#include <mutex>
#include <unordered_set>

#include "jobs/job_queue.h"

namespace ponder::jobs {

class CallTable {
 public:
  CallId open();
  bool is_open(CallId call) const;
  /// True for the one who ends it: then, and only then, the caller is told.
  bool close(CallId call);

 private:
  mutable std::mutex mutex_;
  std::unordered_set<CallId> open_;
  CallId last_ = 0;
};

}  // namespace ponder::jobs
