// The table of resources, and how a request finds its row.
#include <fmt/core.h>

#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "daemon/http/gate.h"
#include "engine/base/ids.h"

namespace ponder::daemon {

const std::vector<Route>& routes() {
  static const std::vector<Route> table = {
      {"GET", "/health", false, get_health},
      {"GET", "/v1/models", false, get_models},
      {"GET", "/v1/models/{name}", false, get_model},
      {"POST", "/v1/chat/completions", true, post_chat_completions},
      {"POST", "/v1/tokenize", true, post_tokenize},
      {"POST", "/v1/unload", false, post_unload},
      {"POST", "/v1/jobs", true, post_job},
      {"POST", "/v1/jobs/prune", false, post_prune},
      {"GET", "/v1/jobs", false, get_jobs},
      {"GET", "/v1/jobs/{id}", false, get_job},
      {"DELETE", "/v1/jobs/{id}", false, delete_job},
      {"GET", "/v1/jobs/{id}/result", false, get_job_result},
      {"GET", "/v1/jobs/{id}/events", false, get_job_events},
      {"POST", "/v1/jobs/{id}/cancel", false, post_job_cancel},
      {"POST", "/v1/jobs/{id}/pin", true, post_job_pin},
  };
  return table;
}

namespace {

/// Whether `path` has the form of `pattern`; `id` gets what stood for its variable.
bool matches(std::string_view pattern, std::string_view path, std::string& id) {
  const std::size_t open = pattern.find('{');
  if (open == pattern.npos) return pattern == path;
  const std::size_t close = pattern.find('}');
  const std::string_view tail = pattern.substr(close + 1);
  if (path.size() < open + tail.size() + 1 || path.substr(0, open) != pattern.substr(0, open) ||
      path.substr(path.size() - tail.size()) != tail)
    return false;
  const std::string_view variable = path.substr(open, path.size() - tail.size() - open);
  const bool is_name = pattern.substr(open, close - open + 1) == "{name}";
  if (!is_name && variable.find('/') != variable.npos) return false;
  id = variable;
  return true;
}

struct Match {
  const Route* route = nullptr;  ///< null: the path is unknown, or `allow` says its methods
  std::string allow;
  std::string id;
};

Match find_route(std::string_view method, std::string_view path) {
  Match match;
  for (const Route& route : routes()) {
    std::string id;
    if (!matches(route.pattern, path, id)) continue;
    if (method == route.method || (method == "HEAD" && route.method == "GET")) {
      match.route = &route;
      match.id = std::move(id);
      return match;
    }
    if (!match.allow.empty()) match.allow += ", ";
    match.allow += route.method;
    if (route.method == "GET") match.allow += ", HEAD";
  }
  return match;
}

Response not_allowed(const Match& match) {
  Response response = error_response(
      Error{ErrorCode::bad_request, fmt::format("this path takes {} only", match.allow)});
  response.status = 405;
  response.headers.push_back({"Allow", match.allow});
  return response;
}

/// What clients of other servers ask for, and what they are told until it is served.
struct Unserved {
  std::string_view path;
  std::string_view hint;
};
constexpr std::string_view kUseChat = "use POST /v1/chat/completions";
constexpr Unserved kUnserved[] = {
    {"/v1/completions", kUseChat},
    {"/v1/responses", kUseChat},
    {"/v1/messages", kUseChat},
    {"/v1/messages/count_tokens", "use POST /v1/tokenize"},
    {"/metrics", "use GET /health"},
    {"/", "use GET /health, or `ponder status` on the command line"},
};

Error nothing_here(std::string_view path) {
  for (const Unserved& one : kUnserved)
    if (path == one.path)
      return {ErrorCode::not_found, fmt::format("{} is not served by this version yet", path),
              std::string(one.hint)};
  return {ErrorCode::not_found, "there is nothing at this path",
          "what is served: /health, /v1/models, /v1/chat/completions, /v1/tokenize and /v1/jobs"};
}

bool is_json(const std::string& content_type) {
  const std::string type = lower_case(content_type);
  std::string_view media = std::string_view(type).substr(0, type.find(';'));
  while (!media.empty() && (media.back() == ' ' || media.back() == '\t'))
    media.remove_suffix(1);
  if (media != "application/json") return false;
  const std::size_t charset = type.find("charset=");
  if (charset == type.npos) return true;
  std::string_view name = std::string_view(type).substr(charset + 8);
  if (!name.empty() && name.front() == '"') name.remove_prefix(1);
  return name.substr(0, 5) == "utf-8" || name.substr(0, 4) == "utf8";
}

/// POST says that its body is JSON: the types a web form can send never reach a handler. Where the
/// resource needs no body, a POST without one may say what it likes (some clients name a type of
/// their own).
std::optional<Response> judge_media(const RequestHead& head, const Route& route) {
  if (route.method != "POST") return {};
  if (!route.wants_json && !head.has_body()) return {};
  const std::string* type = head.header("content-type");
  if (type && is_json(*type)) return {};
  return error_response(Error{ErrorCode::unsupported_media, "the body must be application/json",
                              "send Content-Type: application/json"});
}
}  // namespace

std::optional<Response> Api::admit(RequestHead& head) const {
  std::optional<Response> refusal = judge(head);
  // Anthropic's clients tell an error by its outer type; the other fields do them no harm.
  if (json::object* body = refusal ? refusal->body.if_object() : nullptr;
      body && (head.path == "/v1/messages" || head.path == "/v1/messages/count_tokens"))
    (*body)["type"] = "error";
  return refusal;
}

std::optional<Response> Api::judge(RequestHead& head) const {
  auto trusted = services_.access.check(head);
  if (!trusted) {
    Response refusal = error_response(trusted.error());
    refusal.close = true;
    return refusal;
  }
  head.trusted = *trusted;
  const Match match = find_route(head.method, head.path);
  const bool open_to_all = match.route && match.route->pattern == "/health";
  if (!head.trusted && !open_to_all)
    return error_response(
        Error{ErrorCode::unauthorized, "this address wants the API key",
              "send Authorization: Bearer KEY with the key from the api-key file"});
  if (!match.route)
    return match.allow.empty() ? error_response(nothing_here(head.path)) : not_allowed(match);
  if (match.route->pattern.find("{id}") != std::string_view::npos && !is_job_id(match.id))
    return error_response(
        Error{ErrorCode::job_unknown, "there is no job with this id",
              "ids are 26 characters of a-z and 0-9; list them with GET /v1/jobs"});
  return judge_media(head, *match.route);
}

void Api::handle(ExchangePtr exchange, std::string body) const {
  Match match = find_route(exchange->head.method, exchange->head.path);
  if (!match.route) return exchange->respond(error_response(nothing_here(exchange->head.path)));
  match.route->handler(services_, std::move(exchange), std::move(body), std::move(match.id));
}

}  // namespace ponder::daemon
