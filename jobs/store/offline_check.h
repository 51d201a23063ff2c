#pragma once
// Looks at everything that a database promises, while no daemon runs, and changes nothing: for
// `ponderd --check-database` and `ponder doctor --offline`. The caller holds the instance lock.
#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::jobs {

/// {"ok", "database", "bytes", "log_bytes", "database_version", "jobs": {STATE: count},
///  "texts_checked", "damaged": [{"job_id", "what"}], "checks": [{"name", "state", "message",
///  "hint"}]}, state one of ok, note, fail. `ok`: no check failed. Up to 1,000 damaged jobs are
///  named.
json::object check_database_offline(const std::filesystem::path& file);

}  // namespace ponder::jobs
