#pragma once
// How ponder and ponder-mcp talk to the daemon: HTTP/1.1 over its Unix socket, or over TCP with
// PONDER_URL and PONDER_KEY_FILE. Blocking calls; POSIX only. Thread-safe: each call has its own
// connection, so a long wait on one thread holds up nobody else.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/places.h"

namespace ponder::client {

/// Lets another thread end a call early (its error is then `cancelled`). May be used once per call
/// and from any thread or signal handler.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  void trigger();      ///< async-signal-safe
  bool triggered() const { return flag_.load(); }
  int wait_fd() const { return read_fd_; }  ///< readable once triggered

 private:
  std::atomic<bool> flag_{false};
  int read_fd_ = -1;
  int write_fd_ = -1;
};

struct Response {
  int status = 0;
  json::value body;  ///< parsed JSON; null when empty
  int retry_after_s = -1;
};

struct ServerEvent {
  std::string id;
  std::string event;
  std::string data;
};

struct ClientOptions {
  Places places;
  bool may_start = true;      ///< start the local daemon when it is not running
  int connect_timeout_ms = 10'000;
  std::string url;            ///< PONDER_URL, or empty for the Unix socket
  std::string key_file;       ///< PONDER_KEY_FILE
};

class DaemonClient {
 public:
  explicit DaemonClient(ClientOptions options);

  /// One request. A status >= 400 becomes an Error with the server's code, message and hint;
  /// no daemon is `unreachable`, with the reason ("stopped by its owner at T; `ponder start`").
  /// `timeout_ms` bounds the whole call.
  Result<Response> call(std::string_view method, std::string_view target, const json::value* body,
                        int timeout_ms, Interrupt* interrupt = nullptr);

  /// Reads a server-sent-event stream until it ends, `on_event` returns false, or the interrupt.
  Result<void> stream(std::string_view target, const std::function<bool(const ServerEvent&)>& on_event,
                      Interrupt* interrupt = nullptr);

  /// Makes sure a daemon answers, starting it if allowed. Called by call() and stream() too.
  Result<void> ensure_running();

  /// Whether something listens now, without starting anything.
  bool is_running() const;

  const ClientOptions& options() const { return options_; }

 private:
  ClientOptions options_;
};

/// Starts `ponderd --detach` beside this program and waits until its socket answers. Races with
/// other starters are settled by the daemon's lock; removes the owner's stop marker only if
/// `by_owner`.
Result<void> start_daemon(const Places& places, bool by_owner);

/// Options from --home, PONDER_URL, PONDER_KEY_FILE.
Result<ClientOptions> client_options(const std::string& home, bool may_start);

}  // namespace ponder::client
