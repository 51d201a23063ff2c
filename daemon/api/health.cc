// GET /health: whether work can be done now, in one word, and the numbers behind the word.
#include <fmt/core.h>

#include "daemon/api/api.h"
#include "daemon/api/request.h"

namespace ponder::daemon {
namespace {

/// Far beyond any write of a disk that works.
constexpr std::int64_t kStuckMs = 1000;

bool is_stuck(const jobs::QueueStatus& queue) {
  return queue.stuck_ms > kStuckMs;
}

/// Why it is not ready; the worst reason, where there are several.
std::string reason_of(const GeneratorStatus& engine, const jobs::QueueStatus& queue) {
  if (engine.state == GeneratorState::failed) return engine.reason;
  if (!queue.store_ok) return queue.store_reason;
  if (is_stuck(queue))
    return fmt::format(
        "the job database has not answered for {} s: another program holds it, or the disk hangs",
        queue.stuck_ms / 1000);
  // What is wrong now comes first; a database that was damaged and mended is no failure.
  return engine.reason.empty() ? queue.store_note : engine.reason;
}

/// ready busy loading stalled failed.
std::string_view state_word(const GeneratorStatus& engine, const jobs::QueueStatus& queue) {
  if (!queue.store_ok) return "failed";  // nothing can be accepted until the disk takes writes
  if (is_stuck(queue)) return "stalled";
  if (engine.device_lost) return "failed";  // it is waited for, but nothing is being loaded
  switch (engine.state) {
    case GeneratorState::loading:
      return "loading";
    case GeneratorState::failed:
      return "failed";
    case GeneratorState::ready:
      break;
  }
  if (!engine.reason.empty()) return "stalled";  // ready, but its process does not answer
  return queue.running > 0 ? "busy" : "ready";
}

double seconds(std::int64_t ms) {
  return static_cast<double>(ms) / 1000.0;
}

json::value speed_or_null(double tokens_per_s) {
  if (tokens_per_s <= 0) return nullptr;
  return json::value(tokens_per_s);
}

json::value number_or_null(std::int64_t n) {
  if (n == 0) return nullptr;
  return json::value(n);
}
}  // namespace

void get_health(const ApiServices& services, ExchangePtr exchange, std::string, std::string) {
  const GeneratorStatus engine = services.generator.status();
  const jobs::QueueStatus queue = services.queue.status();
  const std::string_view state = state_word(engine, queue);
  Response response;
  response.status = state == "ready" || state == "busy" ? 200 : 503;
  if (!exchange->head.trusted) {
    response.body = json::object{{"state", state}};
    return exchange->respond(std::move(response));
  }
  json::object body;
  body["state"] = state;
  body["reason"] = text_or_null(reason_of(engine, queue));
  body["degraded"] = json::array(engine.degraded.begin(), engine.degraded.end());
  body["model"] = json::object{{"id", text_or_null(engine.model.id)},
                               {"class", text_or_null(engine.model.model_class)},
                               {"path", text_or_null(engine.model.path)},
                               {"n_ctx", number_or_null(engine.model.n_ctx)}};
  body["engine"] = json::object{{"pid", number_or_null(engine.pid)},
                                {"device", text_or_null(engine.model.device)},
                                {"restarts", engine.restarts},
                                {"last_error", text_or_null(engine.last_error)},
                                {"uptime_s", engine.uptime_s},
                                {"tokens_per_s", speed_or_null(engine.tokens_per_s)},
                                {"usual_tokens_per_s", speed_or_null(engine.usual_tokens_per_s)}};
  body["queue"] = json::object{{"running", queue.running},
                               {"ask", queue.ask},
                               {"batch", queue.batch},
                               {"limit", queue.limit}};
  body["store"] = json::object{{"ok", queue.store_ok}, {"free_bytes", queue.free_bytes}};
  body["tcp"] = services.tcp;
  body["version"] = services.version;
  body["build"] = services.build;
  body["uptime_s"] = seconds(services.clock.steady_ms() - services.started_steady_ms);
  response.body = std::move(body);
  exchange->respond(std::move(response));
}

}  // namespace ponder::daemon
