#pragma once
// The one place where an Error becomes an HTTP answer. Pure.
#include "daemon/http/message.h"
#include "engine/base/error.h"

namespace ponder::daemon {

/// 4xx for what the caller must change, 5xx for what may go away by itself; a deterministic
/// failure is never 5xx, because clients repeat those.
int http_status(ErrorCode code);

/// {"error": {"type", "code", "message", "param", "hint", "job_id", numbers...}}.
json::object error_body(const Error& error);

/// Both, with Retry-After where trying again helps and WWW-Authenticate on 401.
Response error_response(const Error& error);

}  // namespace ponder::daemon
