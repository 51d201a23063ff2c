#include "clients/cli/context.h"

#include <fmt/core.h>

#include <utility>

#include "clients/cpp/shell_words.h"

namespace ponder::cli {
namespace {
json::value text_or_null(const std::string& text) {
  return text.empty() ? json::value(nullptr) : json::value(text);
}
/// The daemon speaks of fields; on the command line they are options.
std::string with_options(std::string text) {
  constexpr std::string_view kField = "force_new";
  for (std::size_t at = 0; (at = text.find(kField, at)) != std::string::npos;)
    text.replace(at, kField.size(), "--force-new");
  return text;
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

std::string Context::own_command(std::string command) const {
  if (globals_.home.empty() || command.find("--home") != std::string::npos) return command;
  const auto here = places();
  if (!here) return command;
  const std::string home = " --home " + client::shell_quoted(here->state_dir.string());
  const bool is_one = (command.starts_with("ponder ") || command.find(": ponder ") < 60) &&
                      command.find_first_of("&`") == std::string::npos;
  if (is_one) return command + home;
  // Commands in a sentence or in a row: each gets it behind the program's name.
  constexpr std::string_view kName = "ponder ";
  for (std::size_t at = 0; (at = command.find(kName, at)) != std::string::npos;) {
    const std::string_view before = std::string_view(command).substr(0, at);
    const bool is_command = before.empty() || before.ends_with('`') || before.ends_with("&& ") ||
                            before.ends_with(": ");
    at += kName.size() - 1;
    if (!is_command) continue;
    command.insert(at, home);
    at += home.size();
  }
  return command;
}

void Context::note(const std::string& text) {
  if (!text.empty()) say("ponder: " + with_options(text));
}

json::object Context::with_own_next(json::object envelope) const {
  json::value* next = envelope.if_contains("next");
  json::value* shell = next && next->is_object() ? next->as_object().if_contains("shell") : nullptr;
  if (shell && shell->is_string())
    *shell = own_command(std::string(shell->as_string().data(), shell->as_string().size()));
  return envelope;
}

void Context::document(const json::object& fields) {
  json::object document{{"schema_version", 1}};
  for (const auto& [key, value] : with_own_next(fields))
    document[key] = value;
  if (json::value* jobs = document.if_contains("jobs"); jobs && jobs->is_array())
    for (json::value& job : jobs->as_array())
      if (job.is_object()) job = with_own_next(std::move(job.as_object()));
  out(to_json(document) + "\n");
}

void Context::jobs_document(const json::array& jobs, std::size_t named) {
  json::object fields;
  if (named == 1 && jobs.size() == 1 && jobs.front().is_object()) fields = jobs.front().as_object();
  fields["jobs"] = jobs;
  document(fields);
}

int Context::failed(const Error& error) {
  return failed(error, exit_code_of(error.code));
}

int Context::failed(const Error& told, int exit_code) {
  Error error = told;
  error.hint = own_command(with_options(std::move(error.hint)));
  error.message = with_options(std::move(error.message));
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
