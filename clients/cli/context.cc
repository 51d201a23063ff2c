#include "clients/cli/context.h"

#include <fmt/core.h>

namespace ponder::cli {
namespace {
json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}
}  // namespace

json::object error_fields(const Error& error) {
  const bool refused = exit_code_of(error.code) == kUsage;
  json::object fields{
      {"type", refused ? "invalid_request_error" : "api_error"},
      {"code", json::string_view(to_string(error.code).data(), to_string(error.code).size())},
      {"message", error.message},
      {"param", text_or_null(error.param)},
      {"hint", text_or_null(error.hint)},
      {"job_id", text_or_null(error.job_id)}};
  for (const auto& [name, number] : error.details)
    fields[name] = number;
  return fields;
}

Result<client::DaemonClient> Context::daemon(Start start) const {
  TRY(client::ClientOptions options,
      client::client_options(globals_.home, start == Start::allowed && !globals_.no_start));
  return client::DaemonClient(std::move(options));
}

void Context::document(const json::object& fields) {
  json::object document{{"schema_version", 1}};
  for (const auto& [key, value] : fields)
    document[key] = value;
  out(to_json(document) + "\n");
}

int Context::failed(const Error& error) {
  return failed(error, exit_code_of(error.code));
}

int Context::failed(const Error& error, int exit_code) {
  if (json()) {
    document({{"error", error_fields(error)}});
  } else {
    std::string line = "ponder: " + error.message;
    if (!error.param.empty()) line += fmt::format(" [{}]", error.param);
    if (!error.hint.empty() && error.message.find(error.hint) == std::string::npos)
      line += fmt::format("\n  {}", error.hint);
    say(line);
  }
  return exit_code;
}

int Context::usage(std::string sentence, std::string hint) {
  return failed(Error{ErrorCode::bad_request, std::move(sentence), std::move(hint)});
}

}  // namespace ponder::cli
