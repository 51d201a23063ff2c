#pragma once
// The daemon's sockets: a Unix socket and TCP listeners, one io thread, bounded connections.
// HTTP/1.1 with keep-alive. Owned by the main thread; the object must outlive every Exchange.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "daemon/http/exchange.h"
#include "daemon/http/gate.h"
#include "engine/base/error.h"

namespace ponder::daemon {

struct ServerLimits {
  HeadLimits head = {};
  std::uint64_t max_body_bytes = 32u << 20;
  std::uint64_t max_body_bytes_total = 256u << 20;  ///< of all connections together
  std::size_t max_output_bytes = 1u << 20;          ///< of a stream, written and not yet taken
  std::size_t inline_body_bytes = 64u << 10;        ///< larger bodies are handled off the io thread
  int max_connections = 1024;                       ///< an eighth of them for the Unix socket alone
  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_idle_timeout{15'000};
  std::chrono::milliseconds write_idle_timeout{30'000};
  std::chrono::milliseconds keep_alive_timeout{60'000};  ///< between two requests
};

/// Runs on the io thread when a header is complete and before its body is read; marks the head as
/// trusted where it is. An answer here refuses the request.
using Admission = std::function<std::optional<Response>(RequestHead&)>;
/// Gets the request and its body. Runs on the io thread, for large bodies on a prep thread. Must
/// not block.
using Handler = std::function<void(std::shared_ptr<Exchange>, std::string body)>;
/// The body of an answer to `error`, for refusals that no handler sees.
using ErrorAnswer = std::function<Response(const Error&)>;

class Server {
 public:
  explicit Server(ServerLimits limits);
  ~Server();  ///< stop()s
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// Binds the Unix socket (mode 0600) and listens; peers of another uid are turned away. A stale
  /// socket file is removed: hold the instance lock. Paths over 107 bytes are bound through their
  /// directory's descriptor.
  Result<void> listen_unix(const std::filesystem::path& path);
  /// Binds and listens; port 0 takes a free one. Returns the port. `address` is an IPv4 or IPv6
  /// literal.
  Result<std::uint16_t> listen_tcp(const std::string& address, std::uint16_t port);

  /// Starts serving. Call once, after the listens.
  void start(Admission admission, Handler handler, ErrorAnswer error_answer);

  /// Leaves a task for the io thread. Any thread.
  void post(std::function<void()> task);

  /// No new connections; the Unix socket's file is removed, if it is still this server's. Open ones
  /// go on.
  void stop_accepting();
  /// Waits until no request is being answered, at most `bound`.
  void drain(std::chrono::milliseconds bound);
  /// Ends every connection and the io thread. Idempotent.
  void stop();

  int connections() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ponder::daemon
