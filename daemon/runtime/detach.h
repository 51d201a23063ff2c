#pragma once
// Going into the background: the parent stays until the child says how its start went.
#include <filesystem>
#include <string>

#include "engine/base/error.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {

/// The child's side of the start: tells the waiting parent. Without a parent (in the foreground)
/// it does nothing.
class StartReport {
 public:
  StartReport() = default;
  explicit StartReport(UniqueFd pipe) : pipe_(std::move(pipe)) {}
  /// `warning`: one sentence for the starter's stderr, or empty.
  void serving(const std::string& warning = {});
  void failed(const std::string& message);
  bool has_starter() const { return static_cast<bool>(pipe_); }

 private:
  UniqueFd pipe_;
};

/// Forks. The parent never returns: it exits 0 once the child is serving
/// (with its warning, if there is one, on stderr), or prints why not on
/// stderr and exits 1. The child returns in a session of its own, with / as its directory, stdin
/// from /dev/null, stdout and stderr in `log_file` (0600) and no other descriptor of its starter.
/// Call before any thread exists.
Result<StartReport> detach(const std::filesystem::path& log_file);

/// For a detached process: its stdout and stderr go to a new `file` from now on, if the one there
/// was moved aside. False: it cannot be opened, and all stays.
bool reopen_log(const std::filesystem::path& file);

}  // namespace ponder::daemon
