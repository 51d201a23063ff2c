#include "clients/cpp/probe.h"

namespace ponder::client {
namespace {
constexpr int kTimeoutMs = 30'000;
}

json::object probe(const Post& post, const Clock& clock) {
  const json::value body{{"model", "probe"},
                         {"messages", {{{"role", "user"}, {"content", "Say OK."}}}},
                         {"max_tokens", 1},
                         {"reasoning_effort", "none"},
                         {"stream", false}};
  const std::int64_t began_ms = clock.steady_ms();
  const Result<Response> answer = post("/v1/chat/completions", body, kTimeoutMs);
  const double seconds = static_cast<double>(clock.steady_ms() - began_ms) / 1000;
  json::object report{{"ok", answer.has_value()}, {"seconds", seconds}, {"error", nullptr}};
  if (!answer) report["error"] = answer.error().message;
  return report;
}

}  // namespace ponder::client
