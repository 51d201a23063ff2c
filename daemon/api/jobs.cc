// /v1/jobs: the durable queue over HTTP. Bodies and parameters become calls of JobQueue; its
// answers become JSON. What a job is, is the queue's business.
#include <fmt/core.h>

#include <algorithm>
#include <mutex>

#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "daemon/api/request.h"
#include "engine/base/ids.h"

namespace ponder::daemon {
namespace {

constexpr double kMaxWaitS = 300;
constexpr std::int64_t kMaxListed = 1000;
constexpr std::int64_t kMaxOffset = std::int64_t{1} << 40;

/// Answers with an envelope, or with the error.
std::function<void(Result<json::object>)> envelope_answer(ExchangePtr exchange) {
  return [exchange = std::move(exchange)](Result<json::object> envelope) {
    if (!envelope) return exchange->respond(error_response(envelope.error()));
    Response response;
    response.body = std::move(*envelope);
    exchange->respond(std::move(response));
  };
}

void add_note(json::object& envelope, const std::string& more) {
  const json::value* note = envelope.if_contains("note");
  const std::string old = note && note->is_string() ? std::string(note->as_string()) : "";
  envelope["note"] = old.empty() ? more : old + "; " + more;
}

Result<jobs::ListFilter> read_filter(const RequestHead& head) {
  jobs::ListFilter filter;
  TRY(const std::string state, text_parameter(head, "state", 64));
  if (!state.empty()) {
    filter.state = jobs::state_from(state);
    if (!filter.state) {
      Error unknown{ErrorCode::bad_request,
                    fmt::format("unknown state \"{}\"; use queued, running, completed, incomplete, "
                                "failed, cancelled, interrupted or expired",
                                state)};
      unknown.param = "state";
      return fail(std::move(unknown));
    }
  }
  TRY(filter.workspace, text_parameter(head, "workspace", 4096));
  TRY(filter.label, text_parameter(head, "label", 800));
  TRY(const std::int64_t limit, int_parameter(head, "limit", 50, 1, INT64_MAX));
  filter.limit = static_cast<int>(std::min(limit, kMaxListed));  // next_before leads on
  TRY(filter.before, text_parameter(head, "before", 64));
  if (!filter.before.empty() && !is_job_id(filter.before)) {
    Error malformed{ErrorCode::bad_request, "\"before\" must be a job id"};
    malformed.param = "before";
    return fail(std::move(malformed));
  }
  return filter;
}

json::object page_body(const jobs::ResultPage& page) {
  constexpr std::string_view kParts[] = {"answer", "reasoning", "partial", "request"};
  json::object body{
      {"job_id", page.job_id},
      {"state", jobs::to_string(page.state)},
      {"part", kParts[static_cast<int>(page.part)]},
      {"offset", page.offset},
      {"next_offset", page.next_offset < 0 ? json::value(nullptr) : json::value(page.next_offset)},
      {"total_chars", page.total_chars},
      {"truncated", page.truncated},
      {"text", page.text}};
  if (page.seed) body["seed"] = *page.seed;
  return body;
}

struct PageRequest {
  jobs::Part part = jobs::Part::answer;
  std::int64_t offset = 0;
  std::int64_t limit = -1;
};

Result<PageRequest> read_page_request(const RequestHead& head) {
  PageRequest request;
  TRY(const std::string part, text_parameter(head, "part", 64));
  if (part == "reasoning") {
    request.part = jobs::Part::reasoning;
  } else if (part == "partial") {
    request.part = jobs::Part::partial;
  } else if (part == "request") {
    request.part = jobs::Part::request;
  } else if (!part.empty() && part != "answer") {
    Error unknown{ErrorCode::bad_request, "\"part\" must be answer, reasoning, partial or request"};
    unknown.param = "part";
    return fail(std::move(unknown));
  }
  TRY(request.offset, int_parameter(head, "offset", 0, 0, kMaxOffset));
  TRY(request.limit, int_parameter(head, "limit", -1, 0, kMaxOffset));
  return request;
}

tl::unexpected<Error> refused(std::string_view parameter, std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = parameter;
  return fail(std::move(error));
}

struct JobRequest {
  jobs::Look look;
  bool lowered = false;  ///< its wait
};

Result<JobRequest> read_job_request(const RequestHead& head) {
  JobRequest request;
  TRY(const double wait_s, number_parameter(head, "wait_s", 0, 0, 1e9));
  request.lowered = wait_s > kMaxWaitS;
  request.look.wait_ms = static_cast<std::int64_t>(std::min(wait_s, kMaxWaitS) * 1000.0);
  TRY(const std::string seen, text_parameter(head, "seen", 64));
  if (!seen.empty()) {
    const std::size_t colon = std::min(seen.find(':'), seen.size());
    const auto state = jobs::state_from(std::string_view(seen).substr(0, colon));
    if (!state)
      return refused("seen", "\"seen\" must be a state, or a state and a phase: running:thinking");
    request.look.seen = {*state, colon < seen.size() ? seen.substr(colon + 1) : std::string()};
  }
  TRY(const std::string told, text_parameter(head, "told", 8));
  if (!told.empty() && told != "true" && told != "false")
    return refused("told", "\"told\" must be true or false");
  request.look.told = told == "true";
  return request;
}

/// The id of a queue call, known only when the call has returned, and a client that may go away
/// before that.
class WaitingCall {
 public:
  explicit WaitingCall(jobs::JobQueue& queue) : queue_(queue) {}
  void started(jobs::CallId call) {
    {
      const std::lock_guard lock(mutex_);
      call_ = call;
      if (!gone_) return;
    }
    queue_.forget(call);
  }
  void client_gone() {
    std::optional<jobs::CallId> call;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      call = call_;
    }
    if (call) queue_.forget(*call);
  }

 private:
  jobs::JobQueue& queue_;
  std::mutex mutex_;
  std::optional<jobs::CallId> call_;
  bool gone_ = false;
};
}  // namespace

void post_job(const ApiServices& services, ExchangePtr exchange, std::string body, std::string) {
  auto object = parse_json_object(body, services.json_limits);
  if (!object) return exchange->respond(error_response(object.error()));
  std::string().swap(body);
  auto spec = jobs::parse_job_spec(*object);
  json::object().swap(*object);
  if (!spec) return exchange->respond(error_response(spec.error()));
  // Not forgotten when the client goes away: it may have meant the job to stay.
  const std::string warning = spec->kind == jobs::Lane::batch ? services.restart_warning : "";
  services.queue.submit(std::move(*spec), [exchange, warning](Result<jobs::Submitted> submitted) {
    if (!submitted) return exchange->respond(error_response(submitted.error()));
    Response response;
    if (submitted->created) {
      response.status = 201;
      submitted->envelope["warning"] = text_or_null(warning);
      if (const json::value* id = submitted->envelope.if_contains("job_id"); id && id->is_string())
        response.headers.push_back(
            {"Location", "/v1/jobs/" + std::string(std::string_view(id->as_string()))});
    }
    response.body = std::move(submitted->envelope);
    exchange->respond(std::move(response));
  });
}

void get_jobs(const ApiServices& services, ExchangePtr exchange, std::string, std::string) {
  auto filter = read_filter(exchange->head);
  if (!filter) return exchange->respond(error_response(filter.error()));
  services.queue.list(std::move(*filter), [exchange](Result<jobs::ListPage> page) {
    if (!page) return exchange->respond(error_response(page.error()));
    json::array rows;
    rows.reserve(page->jobs.size());
    for (json::object& job : page->jobs)
      rows.emplace_back(std::move(job));
    Response response;
    response.body =
        json::object{{"jobs", std::move(rows)}, {"next_before", text_or_null(page->next_before)}};
    exchange->respond(std::move(response));
  });
}

void get_job(const ApiServices& services, ExchangePtr exchange, std::string, std::string id) {
  auto request = read_job_request(exchange->head);
  if (!request) return exchange->respond(error_response(request.error()));
  auto call = std::make_shared<WaitingCall>(services.queue);
  // A look that only tells is not given up: it is made by who is about to go.
  if (request->look.wait_ms > 0) exchange->on_gone([call] { call->client_gone(); });
  call->started(services.queue.get(
      std::move(id), std::move(request->look),
      [lowered = request->lowered,
       answer = envelope_answer(std::move(exchange))](Result<json::object> envelope) {
        if (envelope && lowered)
          add_note(*envelope, fmt::format("wait_s was lowered to {:.0f}", kMaxWaitS));
        answer(std::move(envelope));
      }));
}

void get_job_result(const ApiServices& services, ExchangePtr exchange, std::string,
                    std::string id) {
  auto request = read_page_request(exchange->head);
  if (!request) return exchange->respond(error_response(request.error()));
  services.queue.result(std::move(id), request->part, request->offset, request->limit,
                        [exchange](Result<jobs::ResultPage> page) {
                          if (!page) return exchange->respond(error_response(page.error()));
                          Response response;
                          response.body = page_body(*page);
                          exchange->respond(std::move(response));
                        });
}

void post_job_cancel(const ApiServices& services, ExchangePtr exchange, std::string,
                     std::string id) {
  services.queue.cancel(std::move(id), envelope_answer(std::move(exchange)));
}

void post_job_pin(const ApiServices& services, ExchangePtr exchange, std::string body,
                  std::string id) {
  const auto pinned = [&]() -> Result<bool> {
    TRY(const json::object object, parse_json_object(body, services.json_limits));
    if (!has_field(object, "pinned")) {
      Error missing{ErrorCode::bad_request, "\"pinned\" is missing"};
      missing.param = "pinned";
      return fail(std::move(missing));
    }
    return bool_field(object, "pinned", true);
  }();
  if (!pinned) return exchange->respond(error_response(pinned.error()));
  services.queue.pin(std::move(id), *pinned, envelope_answer(std::move(exchange)));
}

void post_prune(const ApiServices& services, ExchangePtr exchange, std::string body, std::string) {
  const auto prune = [&]() -> Result<jobs::Prune> {
    jobs::Prune out;
    if (body.empty()) return out;
    TRY(const json::object object, parse_json_object(body, services.json_limits));
    TRY(out.workspace, string_field(object, "workspace"));
    TRY(out.unread, bool_field(object, "unread", false));
    TRY(out.dry_run, bool_field(object, "dry_run", false));
    return out;
  }();
  if (!prune) return exchange->respond(error_response(prune.error()));
  services.queue.prune(*prune, [exchange](Result<std::vector<std::string>> pruned) {
    if (!pruned) return exchange->respond(error_response(pruned.error()));
    Response response;
    response.body = json::object{{"pruned", json::array(pruned->begin(), pruned->end())}};
    exchange->respond(std::move(response));
  });
}

void delete_job(const ApiServices& services, ExchangePtr exchange, std::string, std::string id) {
  services.queue.remove(std::move(id), [exchange](Result<void> removed) {
    if (!removed) return exchange->respond(error_response(removed.error()));
    Response response;
    response.status = 204;
    exchange->respond(std::move(response));
  });
}

}  // namespace ponder::daemon
