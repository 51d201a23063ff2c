#pragma once
// The smallest turn there is, which shows that the whole engine works.
#include <functional>

#include "clients/cpp/daemon_client.h"
#include "engine/base/clock.h"

namespace ponder::client {

/// A POST of `body` to `target`, bounded by `timeout_ms`.
using Post =
    std::function<Result<Response>(const char* target, const json::value& body, int timeout_ms)>;

/// One token through the whole engine: {"ok", "seconds", "error"}, the error null or what went
/// wrong. It may wait for a model that is being loaded, but not for long.
json::object probe(const Post& post, const Clock& clock);

}  // namespace ponder::client
