#pragma once
// GET /health, and what it means for a script.
#include <string>
#include <vector>

#include "clients/cli/context.h"

namespace ponder::cli {

Result<json::object> get_health(client::DaemonClient& daemon, client::Interrupt* interrupt);

/// kDone if ready or busy, else kNotYet; `strict`: degraded counts as not ready.
int exit_code_of_health(const json::object& health, bool strict);

/// "ready: model pebble, window 32768, 1 running, 2 waiting". Where there is a reason: the state
/// with it, what to do about it, and the rest, a line each.
std::vector<std::string> health_lines(const json::object& health);

/// What must be said with every mention of the bundled model, or "".
std::string demo_warning(const json::object& health);

}  // namespace ponder::cli
