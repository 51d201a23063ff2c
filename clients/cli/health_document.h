#pragma once
// GET /health, and what it means for a script.
#include <string>

#include "clients/cli/context.h"

namespace ponder::cli {

Result<json::object> get_health(client::DaemonClient& daemon, client::Interrupt* interrupt);

/// kDone if ready or busy, else kNotYet; `strict`: degraded counts as not ready.
int exit_code_of_health(const json::object& health, bool strict);

/// "ready: pebble (demo), window 32768, 1 running, 2 waiting".
std::string health_in_words(const json::object& health);

/// What must be said with every mention of the bundled model, or "".
std::string demo_warning(const json::object& health);

}  // namespace ponder::cli
