#pragma once
// The smallest turn there is, which shows that the whole engine works.
#include "engine/base/json.h"

namespace ponder::client {

/// POST it to kProbeTarget; it may wait for a model that is being loaded, but not for long.
constexpr const char* kProbeTarget = "/v1/chat/completions";
constexpr int kProbeTimeoutMs = 30'000;

inline json::value probe_request() {
  return json::object{
      {"model", "probe"},
      {"messages", json::array{json::object{{"role", "user"}, {"content", "Say OK."}}}},
      {"max_tokens", 1},
      {"reasoning_effort", "none"},
      {"stream", false}};
}

}  // namespace ponder::client
