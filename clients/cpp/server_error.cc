#include "clients/cpp/server_error.h"

#include <fmt/core.h>

#include "engine/base/utf8.h"

namespace ponder::client {
namespace {
constexpr std::size_t kSentenceBytesMax = 8'000;

ErrorCode code_of_status(int status) {
  switch (status) {
    case 400:
      return ErrorCode::bad_request;
    case 401:
      return ErrorCode::unauthorized;
    case 403:
      return ErrorCode::forbidden;
    case 404:
      return ErrorCode::not_found;
    case 410:
      return ErrorCode::gone;
    case 413:
      return ErrorCode::too_large;
    case 415:
      return ErrorCode::unsupported_media;
    case 429:
      return ErrorCode::queue_full;
    case 503:
      return ErrorCode::loading;
    default:
      return status < 500 ? ErrorCode::bad_request : ErrorCode::internal;
  }
}

std::string text_of(const json::object& object, std::string_view key) {
  const json::value* v = object.if_contains(key);
  if (!v || !v->is_string()) return {};
  const std::string_view text(v->as_string().data(), v->as_string().size());
  return std::string(text.substr(0, complete_prefix(text.substr(0, kSentenceBytesMax))));
}
}  // namespace

Error decode_error(int status, const json::value& body, int retry_after_s) {
  Error error;
  error.code = code_of_status(status);
  if (retry_after_s >= 0) error.details["retry_after_s"] = retry_after_s;
  const json::value* inner = body.is_object() ? body.as_object().if_contains("error") : nullptr;
  if (inner && inner->is_object()) {
    const json::object& fields = inner->as_object();
    const std::string word = text_of(fields, "code");
    const ErrorCode known = error_code_from(word);
    if (known != ErrorCode::internal || word == "internal") error.code = known;
    error.message = text_of(fields, "message");
    error.hint = text_of(fields, "hint");
    error.param = text_of(fields, "param");
    error.job_id = text_of(fields, "job_id");
    for (const auto& [key, value] : fields)
      if (value.is_int64()) error.details[std::string(key)] = value.as_int64();
  }
  if (error.message.empty()) error.message = fmt::format("the daemon answered HTTP {}", status);
  // No client asks for a path that its own daemon does not have.
  if (error.code == ErrorCode::not_found && error.hint.empty())
    error.hint =
        "the daemon may be of another version than this program: `ponder restart` runs this one's";
  // The server's own hint names the HTTP header, which is our business and not our caller's.
  if (error.code == ErrorCode::unauthorized)
    error.hint =
        "set PONDER_KEY_FILE to a copy of the file api-key in the state directory of the daemon";
  return error;
}

}  // namespace ponder::client
