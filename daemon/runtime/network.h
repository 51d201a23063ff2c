#pragma once
// Opens what the configuration says to listen on.
#include "daemon/config/config.h"
#include "daemon/http/access.h"
#include "engine/base/places.h"

namespace ponder::daemon {

struct Network {
  json::object tcp;                ///< {"addresses": [...], "reason"}, for /health
  std::vector<std::string> names;  ///< addresses that may stand in a Host header
};

/// The Unix socket and the TCP addresses. A taken port is an error if it was given as a flag
/// or listed in `listen`; the default port that is taken is only noted in `tcp`.
Result<Network> open_network(Server& server, const Places& places, const Config& config);

}  // namespace ponder::daemon
