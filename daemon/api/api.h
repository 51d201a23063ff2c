#pragma once
// The HTTP resources. Api joins admission (who may ask what) and the route table; each resource is
// a free function in its own file. Handlers never block: they call the queue or the generator and
// answer from the callback. Thread-safe; const after construction.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "daemon/http/access.h"
#include "daemon/http/exchange.h"
#include "daemon/http/server.h"
#include "engine/base/clock.h"
#include "engine/generator/generator.h"
#include "jobs/job_queue.h"

namespace ponder::daemon {

/// What the resources work with; everything outlives the Api.
struct ApiServices {
  jobs::JobQueue& queue;
  Generator& generator;
  const Clock& clock;
  const Access& access;
  std::string version = {};
  std::string build = {};
  json::value tcp = nullptr;  ///< for /health: the addresses, and why one is missing
  std::int64_t started_wall_ms = 0;
  std::int64_t started_steady_ms = 0;
  JsonLimits json_limits = {};
  std::string restart_warning = {};      ///< said to those who submit a job; empty: none
  std::int64_t stream_start_ms = 2'000;  ///< a chat stream's headers are sent at the latest then
  std::int64_t chat_heartbeat_ms = 5'000;
  std::int64_t events_heartbeat_ms = 15'000;
};

using ExchangePtr = std::shared_ptr<Exchange>;
/// `id` is the {id} of the route, already known to have the form it needs; else empty.
using RouteHandler = void (*)(const ApiServices&, ExchangePtr, std::string body, std::string id);

struct Route {
  std::string_view method;
  std::string_view pattern;  ///< "{id}" stands for one job id, "{name}" for the rest of the path
  bool wants_json;           ///< refuse without a JSON body
  RouteHandler handler;
};
/// The table (routes.cc).
const std::vector<Route>& routes();

/// Keys and values of a body. 4,096 messages and 512 tools have a fifth of them; parsed, so many
/// take about 30 MiB.
constexpr std::size_t kMaxJsonValues = 250'000;

class Api {
 public:
  explicit Api(ApiServices services) : services_(bounded(std::move(services))) {}

  /// For Server::start. The order of refusals: Host and Origin, the key, path, method, media type.
  std::optional<Response> admit(RequestHead& head) const;
  void handle(ExchangePtr exchange, std::string body) const;

 private:
  std::optional<Response> judge(RequestHead& head) const;
  static ApiServices bounded(ApiServices services) {
    services.json_limits.max_values = std::min(services.json_limits.max_values, kMaxJsonValues);
    return services;
  }

  const ApiServices services_;
};

// chat.cc
void post_chat_completions(const ApiServices&, ExchangePtr, std::string body, std::string id);
// models.cc
void get_models(const ApiServices&, ExchangePtr, std::string body, std::string id);
void get_model(const ApiServices&, ExchangePtr, std::string body, std::string id);
// tokenize.cc
void post_tokenize(const ApiServices&, ExchangePtr, std::string body, std::string id);
// health.cc
void get_health(const ApiServices&, ExchangePtr, std::string body, std::string id);
// unload.cc
void post_unload(const ApiServices&, ExchangePtr, std::string body, std::string id);
// jobs.cc
void post_job(const ApiServices&, ExchangePtr, std::string body, std::string id);
void get_jobs(const ApiServices&, ExchangePtr, std::string body, std::string id);
void get_job(const ApiServices&, ExchangePtr, std::string body, std::string id);
void get_job_result(const ApiServices&, ExchangePtr, std::string body, std::string id);
void post_job_cancel(const ApiServices&, ExchangePtr, std::string body, std::string id);
void post_job_pin(const ApiServices&, ExchangePtr, std::string body, std::string id);
void post_prune(const ApiServices&, ExchangePtr, std::string body, std::string id);
void delete_job(const ApiServices&, ExchangePtr, std::string body, std::string id);
// job_events.cc
void get_job_events(const ApiServices&, ExchangePtr, std::string body, std::string id);

}  // namespace ponder::daemon
