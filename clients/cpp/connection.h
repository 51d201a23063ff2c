#pragma once
// One connected stream socket with bounded, interruptible reads and writes. Used by one thread at a
// time. Errors: timed_out, cancelled (the interrupt), unreachable (the peer is gone or stopped).
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "clients/cpp/daemon_client.h"
#include "engine/base/error.h"
#include "engine/base/unique_fd.h"

namespace ponder::client {

/// When a call must have ended, and who may end it sooner.
struct Bounds {
  std::int64_t deadline_ms = 0;  ///< of the steady clock; 0: none
  Interrupt* interrupt = nullptr;

  /// Bounds that end after `timeout_ms` from now; 0 or less: none.
  static Bounds within(int timeout_ms, Interrupt* interrupt);
  /// The sooner of this deadline and `timeout_ms` from now.
  Bounds no_longer_than(int timeout_ms) const;
  /// Milliseconds left, at least 0; -1 without a deadline.
  int left_ms() const;
};

/// Whether a process is stopped (SIGSTOP, a debugger) rather than slow: then it never answers.
/// False where the system does not say.
bool is_suspended(int pid);
/// What to tell about a daemon that is.
Error suspended_error(int pid);

class Connection {
 public:
  /// Connects to the socket at `path`. Nobody listening (no such file, or refused) is an
  /// unconnected Connection and no error: the caller may want to start a daemon. A path longer than
  /// a socket address is reached through its directory where the system can do that, else refused.
  static Result<Connection> to_socket(const std::filesystem::path& path, const Bounds& bounds);
  /// Connects over TCP, trying each address of `host`. The look-up of a name is not bounded.
  static Result<Connection> to_host(const std::string& host, const std::string& port,
                                    const Bounds& bounds);

  bool connected() const { return static_cast<bool>(fd_); }
  /// Who listens on the Unix socket; 0 where that is not known.
  int peer_pid() const { return peer_pid_; }
  Result<void> write_all(std::string_view bytes, const Bounds& bounds);
  /// Reads what is there, at least one byte; 0 is the peer's orderly end.
  Result<std::size_t> read_some(char* into, std::size_t size, const Bounds& bounds);

 private:
  Result<void> wait_for(short events, const Bounds& bounds) const;

  UniqueFd fd_;
  int peer_pid_ = 0;
};

}  // namespace ponder::client
