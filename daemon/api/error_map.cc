#include "daemon/api/error_map.h"

#include <fmt/core.h>

#include "engine/generator/budget.h"

namespace ponder::daemon {
namespace {

std::string_view error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

json::value text_or_null(const std::string& text) {
  if (text.empty()) return nullptr;
  return json::value(text);
}

/// Agents recognise an overflow by one of several phrases before they compact their history; this
/// sentence holds all of them and none that reads as a rate limit.
std::string overflow_message(const Error& error) {
  const auto number = [&](const char* key) {
    const auto found = error.details.find(key);
    return found == error.details.end() ? std::int64_t{-1} : found->second;
  };
  const std::int64_t prompt = number("n_prompt_tokens");
  const std::int64_t window = number("n_ctx");
  const std::int64_t reserved = number("n_reserved");
  if (prompt < 0 || window < 0) return error.message;
  if (prompt + 1 > window)
    return fmt::format(
        "prompt is too long: {} tokens > {} maximum. This model's maximum context length is {} "
        "tokens and your prompt exceeds the available context size.{}",
        prompt, window, window,
        prompt > most_counted(window) ? " Counting stopped there: it may be longer still." : "");
  return fmt::format(
      "prompt is too long: {} tokens and {} reserved for the output > {} maximum. This model's "
      "maximum context length is {} tokens and your prompt exceeds the available context size.",
      prompt, reserved, window, window);
}
}  // namespace

int http_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::bad_request:
    case ErrorCode::context_length_exceeded:
    case ErrorCode::cancelled:  // by whoever asked
      return 400;
    case ErrorCode::unauthorized:
      return 401;
    case ErrorCode::forbidden:
      return 403;
    case ErrorCode::not_found:
    case ErrorCode::job_unknown:
      return 404;
    case ErrorCode::not_completed:
    case ErrorCode::not_terminal:
    case ErrorCode::idempotency_mismatch:
      return 409;
    case ErrorCode::gone:
      return 410;
    case ErrorCode::too_large:
      return 413;
    case ErrorCode::unsupported_media:
      return 415;
    case ErrorCode::queue_full:
      return 429;
    case ErrorCode::storage:
    case ErrorCode::loading:
    case ErrorCode::model_missing:
    case ErrorCode::device_lost:
    case ErrorCode::interrupted:
      return 503;
    case ErrorCode::stream_lost:
    case ErrorCode::unreachable:
      return 502;
    case ErrorCode::timed_out:
      return 504;
    case ErrorCode::out_of_memory:
    case ErrorCode::engine_error:
    case ErrorCode::internal:
      return 500;
  }
  return 500;
}

json::object error_body(const Error& error) {
  const bool overflow = error.code == ErrorCode::context_length_exceeded;
  json::object inner;
  inner["type"] = error_type(http_status(error.code));
  inner["code"] = to_string(error.code);
  inner["message"] = overflow ? overflow_message(error) : error.message;
  inner["param"] = text_or_null(error.param);
  inner["hint"] = text_or_null(error.hint);
  inner["job_id"] = text_or_null(error.job_id);
  for (const auto& [key, number] : error.details)
    inner[key] = number;
  return {{"error", std::move(inner)}};
}

Response error_response(const Error& error) {
  Response response;
  response.status = http_status(error.code);
  response.body = error_body(error);
  if (error.code == ErrorCode::queue_full) response.headers.push_back({"Retry-After", "5"});
  if (error.code == ErrorCode::loading) response.headers.push_back({"Retry-After", "2"});
  // Clients repeat a 5xx by themselves; until somebody brings a model, that helps nobody.
  if (error.code == ErrorCode::model_missing)
    response.headers.push_back({"X-Should-Retry", "false"});
  if (response.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace ponder::daemon
