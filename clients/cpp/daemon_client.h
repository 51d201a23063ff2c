#pragma once
// How ponder and ponder-mcp talk to the daemon: HTTP/1.1 over its Unix socket, or over TCP with
// PONDER_URL and PONDER_KEY_FILE. Blocking calls; POSIX only. Thread-safe: each call has its own
// connection, so a long wait on one thread holds up nobody else.
//
// What the daemon sends is bounded: 64 KiB of header, 64 MiB of body, 16 MiB for one event.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/base/places.h"

namespace ponder::client {

/// Lets another thread end calls early (their error is then `cancelled`). Once triggered it stays
/// so, and may be shared by several calls at once. trigger() may come from any thread or signal
/// handler.
class Interrupt {
 public:
  Interrupt();
  ~Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  void trigger();  ///< async-signal-safe
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
  bool may_start = true;  ///< start the local daemon when it is not running
  int connect_timeout_ms = 10'000;
  std::string url;       ///< PONDER_URL, or empty for the Unix socket
  std::string key_file;  ///< PONDER_KEY_FILE
};

class DaemonClient {
 public:
  explicit DaemonClient(ClientOptions options);

  /// One request. A status >= 400 becomes an Error with the server's code, message, hint, field,
  /// job id and numbers (`retry_after_s` among the details); only a health document is a Response
  /// whatever its status, since /health answers 503 with the same body while it is not ready.
  /// No daemon is `unreachable`, with the reason ("stopped by its owner at T; `ponder start`").
  /// `target` is a path with its query, percent-encoded. `timeout_ms` bounds the whole call, the
  /// start of a daemon included (its error is `timed_out`); 0 or less: no bound. Where a daemon may
  /// be started, one that hangs up before its answer ended (kill -9) is started again and asked
  /// again within 5 s of the call's start, unless that could make a second job (a submit without a
  /// key) or wait a second time (`wait_s`).
  Result<Response> call(std::string_view method, std::string_view target, const json::value* body,
                        int timeout_ms, Interrupt* interrupt = nullptr);

  /// Reads a server-sent-event stream until it ends, `on_event` returns false, or the interrupt.
  /// A stream that breaks off without its proper end is `stream_lost`.
  Result<void> stream(std::string_view target,
                      const std::function<bool(const ServerEvent&)>& on_event,
                      Interrupt* interrupt = nullptr);

  /// Makes sure a daemon answers, starting it if allowed. Called by call() and stream() too.
  Result<void> ensure_running();

  /// Whether something listens now, without starting anything.
  bool is_running() const;

  const ClientOptions& options() const { return options_; }

 private:
  ClientOptions options_;
};

/// Starts `ponderd --detach` beside this program (the directory of the running executable) and
/// waits until its socket answers, at most `timeout_ms`. Starters take turns at `start.lock` beside
/// the daemon's lock and another's success counts. Removes the owner's stop marker only if
/// `by_owner`; else a marker is `unreachable`. A daemon that refuses to start is `unreachable`, or
/// `storage` where it says so, with what it said.
Result<void> start_daemon(const Places& places, bool by_owner, Interrupt* interrupt = nullptr,
                          int timeout_ms = 30'000);

/// The stop marker's sentence, "stopped by its owner at T; `ponder start`", or empty without one;
/// with an explicit home " (with --home DIR)" follows.
std::string stopped_sentence(const Places& places);

/// Options from --home, PONDER_URL, PONDER_KEY_FILE. bad_request for a URL that is not
/// http://HOST[:PORT].
Result<ClientOptions> client_options(const std::string& home, bool may_start);

/// `text` with all but [A-Za-z0-9-._~] percent-encoded, for a query value or a path segment.
std::string percent_encode(std::string_view text);

}  // namespace ponder::client
