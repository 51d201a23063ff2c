#pragma once
// Reading the settings again while the daemon runs (SIGHUP): what can change under running work
// does, the rest is named and waits for a restart. Settings that cannot be read leave all as it is.
#include <functional>
#include <string>
#include <vector>

#include "daemon/config/config.h"

namespace ponder::daemon {

struct Reloaded {
  Config config;                      ///< what runs, with the changes that hold now
  std::vector<std::string> changed;   ///< keys that hold now
  std::vector<std::string> restarts;  ///< keys that wait for a restart
};
/// `running` with what `read` says otherwise of the keys that may change (Key::live).
Reloaded merge_live(const Config& running, const Config& read);

/// Owned by the main thread.
class Reloader {
 public:
  using Read = std::function<Result<Config>()>;
  using Apply = std::function<void(const Config&)>;
  /// `read` is load_config() as at the start; `apply` puts the keys that may change in force.
  Reloader(Config running, Read read, Apply apply)
      : running_(std::move(running)), read_(std::move(read)), apply_(std::move(apply)) {}

  /// Logs what changed and what did not. False: the settings could not be read.
  bool again();
  int refused() const { return refused_; }

 private:
  Config running_;
  const Read read_;
  const Apply apply_;
  int refused_ = 0;
};

}  // namespace ponder::daemon
