#include "jobs/call_table.h"

namespace ponder::jobs {

CallId CallTable::open() {
  const std::lock_guard lock(mutex_);
  open_.insert(++last_);
  return last_;
}

bool CallTable::is_open(CallId call) const {
  const std::lock_guard lock(mutex_);
  return open_.count(call) != 0;
}

bool CallTable::close(CallId call) {
  const std::lock_guard lock(mutex_);
  return open_.erase(call) != 0;
}

}  // namespace ponder::jobs
