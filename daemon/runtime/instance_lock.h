#pragma once
// One daemon a directory: a lock on a file that is held for life and freed by the kernel however
// the process ends. Taken before the socket and the database are touched.
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {

class InstanceLock {
 public:
  /// In the details of the error when another process holds the lock: its pid, or 0.
  static constexpr const char* kHeld = "held_by";

  /// Locks `file` (made if missing, 0600; a mode that keeps us out is mended) and writes our pid
  /// into it, for messages and for `ponder stop`. If another process holds it: an error that names
  /// its pid.
  static Result<InstanceLock> acquire(const std::filesystem::path& file);

  InstanceLock(InstanceLock&&) = default;
  InstanceLock& operator=(InstanceLock&&) = default;
  /// Empties the file and lets go. The file stays: removing it would let two processes each lock
  /// their own.
  ~InstanceLock();

  /// False: the file was removed or replaced, so that another process may hold a lock of its own.
  bool is_in_place() const;

 private:
  InstanceLock(UniqueFd fd, std::filesystem::path file)
      : fd_(std::move(fd)), file_(std::move(file)) {}
  UniqueFd fd_;
  std::filesystem::path file_;
};

}  // namespace ponder::daemon
