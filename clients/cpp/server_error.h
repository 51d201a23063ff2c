#pragma once
// The daemon's error bodies as Errors. Pure.
#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::client {

/// Reads {"error": {"code", "message", "hint", "param", "job_id", numbers...}}; what is missing or
/// of another type comes from the HTTP status. `retry_after_s` >= 0 is kept among the details.
Error decode_error(int status, const json::value& body, int retry_after_s);

}  // namespace ponder::client
