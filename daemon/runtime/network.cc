#include "daemon/runtime/network.h"

#include <fmt/core.h>

#include "engine/base/log.h"

namespace ponder::daemon {

Result<Network> open_network(Server& server, const Places& places, const Config& config) {
  TRY_VOID(server.listen_unix(places.socket));
  Network network;
  json::array addresses;
  json::value reason = nullptr;
  if (config.network.port == 0) {
    if (config.network.listen.empty()) reason = "TCP is switched off (port 0)";
  } else {
    const auto origin = config.origin.find("port");
    const bool explicit_port = origin != config.origin.end() && origin->second == "--port";
    const auto bound =
        server.listen_tcp("127.0.0.1", static_cast<std::uint16_t>(config.network.port));
    if (bound) {
      addresses.emplace_back(fmt::format("127.0.0.1:{}", *bound));
    } else if (explicit_port) {
      return fail(bound.error());
    } else {
      log_warn(bound.error().message + "; only the Unix socket is served");
      reason = bound.error().message;
    }
  }
  for (const std::string& text : config.network.listen) {
    TRY(const ListenAddress address, parse_listen_address(text));
    TRY(const std::uint16_t port, server.listen_tcp(address.address, address.port));
    (void)port;
    addresses.emplace_back(text);
    if (address.address != "0.0.0.0" && address.address != "::") network.names.push_back(text);
  }
  network.tcp = {{"addresses", std::move(addresses)}, {"reason", std::move(reason)}};
  return network;
}

}  // namespace ponder::daemon
