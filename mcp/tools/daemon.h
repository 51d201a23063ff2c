#pragma once
// The daemon as the tools see it: requests in, JSON out. Behind it is DaemonClient, or a fake in
// the tests.
#include <string>
#include <string_view>

#include "clients/cpp/daemon_client.h"
#include "engine/base/json.h"

namespace ponder::mcp {

class Daemon {
 public:
  virtual ~Daemon() = default;

  /// One HTTP request, bounded by `timeout_ms`; starts the daemon if that is allowed. A status of
  /// 400 and more is an Error. Thread-safe, and ends early with `cancelled` on the interrupt.
  virtual Result<client::Response> call(std::string_view method, const std::string& target,
                                        const json::value* body, int timeout_ms,
                                        client::Interrupt* interrupt) = 0;

  /// GET /health of a daemon that runs already, ready or not; never starts one. `unreachable` with
  /// the reason if none answers.
  virtual Result<json::object> health(int timeout_ms, client::Interrupt* interrupt) = 0;
};

}  // namespace ponder::mcp
