// GET /health: whether work can be done now, in one word, and the numbers behind the word.
#include "daemon/api/api.h"
#include "daemon/api/request.h"

namespace ponder::daemon {
namespace {

/// ready busy loading stalled failed.
std::string_view state_word(const GeneratorStatus& engine, const jobs::QueueStatus& queue) {
  if (!queue.store_ok) return "failed";  // nothing can be accepted until the disk takes writes
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
  const bool engine_failed = engine.state == GeneratorState::failed;
  const std::string& reason = queue.store_ok || engine_failed ? engine.reason : queue.store_reason;
  json::object body;
  body["state"] = state;
  body["reason"] = text_or_null(reason);
  body["degraded"] = json::array();
  body["model"] = json::object{{"id", text_or_null(engine.model.id)},
                               {"class", text_or_null(engine.model.model_class)},
                               {"path", text_or_null(engine.model.path)},
                               {"n_ctx", number_or_null(engine.model.n_ctx)}};
  body["engine"] = json::object{{"pid", number_or_null(engine.pid)},
                                {"device", text_or_null(engine.model.device)},
                                {"restarts", engine.restarts},
                                {"last_error", text_or_null(engine.last_error)},
                                {"uptime_s", engine.uptime_s}};
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
