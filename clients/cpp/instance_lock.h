#pragma once
// Who holds the daemon's instance lock, found without touching the lock: trying to take it, even
// for a moment, could make a daemon that starts just then give up.
#include <filesystem>

namespace ponder::client {

struct LockHolder {
  bool held = false;
  int pid = 0;  ///< the process that holds it; 0 if that is not known
};

/// Looks at the lock file. `pid` is the one written into the file, given only if that process lives
/// and really holds the lock: on Linux it is among the holders that the kernel names or has the
/// locked file open; elsewhere the lock is held and the process exists.
LockHolder read_instance_lock(const std::filesystem::path& lock);

}  // namespace ponder::client
