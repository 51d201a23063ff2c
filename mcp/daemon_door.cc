#include "mcp/daemon_door.h"

#include <fmt/core.h>

#include "clients/cpp/shell_words.h"

namespace ponder::mcp {
using client::shell_quoted;
namespace {
client::ClientOptions without_start(client::ClientOptions options) {
  options.may_start = false;
  options.connect_timeout_ms = 2'000;
  return options;
}
}  // namespace

DaemonDoor::DaemonDoor(const client::ClientOptions& options)
    : client_(options), looker_(without_start(options)) {}

Result<client::Response> DaemonDoor::call(std::string_view method, const std::string& target,
                                          const json::value* body, int timeout_ms,
                                          client::Interrupt* interrupt) {
  return client_.call(method, target, body, timeout_ms, interrupt);
}

Result<json::object> DaemonDoor::health(int timeout_ms, client::Interrupt* interrupt) {
  TRY(client::Response response, looker_.call("GET", "/health", nullptr, timeout_ms, interrupt));
  if (!response.body.is_object())
    return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
                "check --home or PONDER_URL");
  return std::move(response.body.as_object());
}

std::string shell_command(std::string_view program, const client::ClientOptions& options) {
  std::string command;
  if (!options.url.empty()) {
    command += fmt::format("PONDER_URL={} ", shell_quoted(options.url));
    if (!options.key_file.empty())
      command += fmt::format("PONDER_KEY_FILE={} ", shell_quoted(options.key_file));
  }
  command += shell_quoted((executable_dir() / program).string());
  if (options.places.explicit_home)
    command += " --home " + shell_quoted(options.places.state_dir.string());
  return command;
}

}  // namespace ponder::mcp
