#pragma once
// The tools' Daemon behind the real client, and the shell words that name the same daemon.
#include <string>

#include "clients/cpp/daemon_client.h"
#include "mcp/tools/daemon.h"

namespace ponder::mcp {

class DaemonDoor final : public Daemon {
 public:
  explicit DaemonDoor(const client::ClientOptions& options);

  Result<client::Response> call(std::string_view method, const std::string& target,
                                const json::value* body, int timeout_ms,
                                client::Interrupt* interrupt) override;
  Result<json::object> health(int timeout_ms, client::Interrupt* interrupt) override;

 private:
  client::DaemonClient client_;
  client::DaemonClient looker_;  ///< the same, but never starts a daemon
};

/// Shell words that run `program` of this program's directory against the daemon of `options`:
/// quoted absolute path, with --home or PONDER_URL where it is not the default.
std::string shell_command(std::string_view program, const client::ClientOptions& options);

}  // namespace ponder::mcp
