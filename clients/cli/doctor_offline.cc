// ponder doctor --offline: the database read to its last byte, by the program that knows how. This
// one never opens it: whoever does could drop the locks of the one that owns it.
#include <fmt/core.h>
#include <unistd.h>

#include "clients/cli/doctor_checks.h"
#include "clients/cli/envelope.h"
#include "clients/cli/run_program.h"

namespace ponder::cli {

bool show_checks(Context& context, const Checks& checks, json::object more) {
  bool ok = true;
  json::array rows;
  for (const Check& check : checks) {
    const std::string own = context.own_command(check.hint);
    ok = ok && check.state != "fail";
    const json::value hint = own.empty() ? json::value(nullptr) : json::value(own);
    if (context.json())
      rows.push_back(json::object{{"name", check.name},
                                  {"state", check.state},
                                  {"message", check.message},
                                  {"hint", hint}});
    else
      context.out(fmt::format("{:<4}  {:<13} {}{}\n", check.state, check.name, check.message,
                              own.empty() ? "" : fmt::format("\n{:>20}{}", "", own)));
  }
  if (context.json()) {
    json::object document{{"ok", ok}, {"checks", std::move(rows)}};
    for (auto& field : more)
      if (!document.contains(field.key())) document[field.key()] = std::move(field.value());
    context.document(document);
  }
  return ok;
}

int check_offline(Context& context) {
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  const std::filesystem::path program = executable_dir() / "ponderd";
  std::vector<std::string> words{"--check-database"};
  if (places->explicit_home) words.insert(words.end(), {"--home", places->state_dir.string()});
  const ProgramReport report = run_for_output(program, words);
  Error failure{ErrorCode::internal, program.string() + " cannot be run",
                "install it beside this program"};
  const auto document = parse_json_object(report.said, {64u << 20, 16});
  if (!document) return context.failed(failure);
  if (const json::value* error = document->if_contains("error")) {
    failure.code = report.exit_code == kTryLater ? ErrorCode::loading : ErrorCode::storage;
    failure.message = text_at(error->as_object(), "message");
    failure.hint = text_at(error->as_object(), "hint");
    return context.failed(failure);
  }
  Checks checks;
  for (const json::value& row : document->at("checks").as_array()) {
    const json::object& check = row.as_object();
    checks.push_back({text_at(check, "name"), text_at(check, "state"), text_at(check, "message"),
                      text_at(check, "hint")});
  }
  return show_checks(context, checks, *document) ? kDone : kStorage;
}

}  // namespace ponder::cli
