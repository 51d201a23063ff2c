#include "clients/cli/arguments.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

namespace ponder::cli {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, ready or busy; 1 failed; 2 usage or refused; 3 not finished or not "
    "ready;\n"
    "4 no such job; 5 incomplete, what it wrote is kept; 6 cancelled or interrupted;\n"
    "69 daemon unreachable; 74 storage; 75 try again later; 124 wait timed out; 130 interrupted,\n"
    "the job goes on. A job's id may be shortened while it is unique; @last is your newest job "
    "here.";

// CLI11 takes a word in brackets for a list, and a question may well look like that. Such words go
// through it behind a mark, and come out without it. Its conversions are not used for the same
// reason.
constexpr char kMark = '\x01';

// What CLI11 takes for any number, and shows as "...".
constexpr int kAnyNumber = CLI::detail::expected_max_vector_size;

std::string marked(std::string_view word) {
  const bool needs = word.starts_with('[') || word.starts_with(kMark);
  return (needs ? std::string(1, kMark) : std::string()).append(word);
}

std::string unmarked(std::string word) {
  if (word.starts_with(kMark)) word.erase(0, 1);
  return word;
}

std::vector<std::string> unmarked(std::vector<std::string> words) {
  for (std::string& word : words)
    word = unmarked(std::move(word));
  return words;
}

bool read_number(const std::vector<std::string>& values, std::optional<std::int64_t>& into) {
  const std::string& text = values.back();
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return false;
  into = number;
  return true;
}

bool read_number(const std::vector<std::string>& values, std::optional<double>& into) {
  // strtod, since from_chars for floating point is missing from macOS's library.
  const std::string& text = values.back();
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != std::string::npos) return false;
  char* end = nullptr;
  const double number = std::strtod(text.c_str(), &end);
  if (end != text.c_str() + text.size() || !std::isfinite(number)) return false;
  into = number;
  return true;
}

/// The first word that is no option, where the command's name stands; "" if there is none.
std::string_view command_word(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--home")
      ++i;
    else if (!word.starts_with('-'))
      return word;
  }
  return {};
}

/// An option before the command's name that there is not; "" if there is none.
std::string_view unknown_option(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (!word.starts_with('-') || word == "--") return {};
    if (word == "--home") {
      ++i;
      continue;
    }
    const std::string_view name = word.substr(0, word.find('='));
    if (name != "--home" && word != "--no-start" && word != "--json" && word != "--version" &&
        word != "--help" && word != "-h")
      return name;
  }
  return {};
}

/// Refuses an empty value of the option that is declared as `names` ("-o,--out").
void refuse_empty(const std::string& names, const std::string& value) {
  if (!value.empty()) return;
  const std::size_t at = names.find("--");
  const std::string name = names.substr(at == std::string::npos ? 0 : at);
  throw CLI::ValidationError(
      fmt::format("{} must not be empty: leave it out, or set the variable that it comes from",
                  name.substr(0, name.find(','))));
}

/// How often the chosen command's own `option` was given.
std::size_t chosen_count(const CLI::App& app, const std::string& option) {
  std::size_t count = 0;
  for (const CLI::App* sub : app.get_subcommands())
    count += sub->count(option);
  return count;
}

bool says_json(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--") return false;
    if (word == "--json") return true;
  }
  return false;
}
}  // namespace

struct Arguments::Parser {
  CLI::App& app;
  std::vector<std::string>* rest = nullptr;

  CLI::Option* add(const std::string& names, CLI::callback_t read, const std::string& help,
                   const std::string& type) {
    return app.add_option(names, std::move(read), help)->type_name(type)->type_size(1)->expected(1);
  }
};

void Arguments::option(const std::string& names, std::string& into, const std::string& help,
                       Empty empty) {
  parser_
      .add(
          names,
          [&into, names, empty](const CLI::results_t& values) {
            into = unmarked(values.back());
            if (empty == Empty::refused) refuse_empty(names, into);
            return true;
          },
          help, "TEXT")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Arguments::option(const std::string& names, std::optional<std::int64_t>& into,
                       const std::string& help) {
  parser_
      .add(
          names, [&into](const CLI::results_t& values) { return read_number(values, into); }, help,
          "N")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Arguments::option(const std::string& names, std::optional<double>& into,
                       const std::string& help) {
  parser_
      .add(
          names, [&into](const CLI::results_t& values) { return read_number(values, into); }, help,
          "SECONDS")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

void Arguments::option(const std::string& names, std::vector<std::string>& into,
                       const std::string& help) {
  parser_
      .add(
          names,
          [&into, names](const CLI::results_t& values) {
            into = unmarked(values);
            for (const std::string& value : into)
              refuse_empty(names, value);
            return true;
          },
          help, "PATH")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void Arguments::flag(const std::string& names, bool& into, const std::string& help) {
  parser_.app.add_flag(names, into, help);
}

void Arguments::words(const std::string& name, std::vector<std::string>& into, int least, int most,
                      const std::string& help) {
  auto* option = parser_.app.add_option(
      name,
      [&into](const CLI::results_t& values) {
        into = unmarked(values);
        return true;
      },
      help);
  option->type_name("")->type_size(1)->expected(std::max(least, 1), most > 0 ? most : kAnyNumber);
  option->allow_extra_args(true);
  if (most == 0) option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  if (least > 0) option->required();
}

void Arguments::rest(std::vector<std::string>& into) {
  parser_.app.allow_extras();
  parser_.rest = &into;
}

ParsedLine parse_line(int argc, const char* const* argv, std::span<const Command> commands,
                      Globals& globals) {
  ParsedLine parsed;
  parsed.wants_json = says_json(argc, argv);
  CLI::App app{"Delegate long reasoning to a language model on this machine.", "ponder"};
  app.require_subcommand(1);
  app.footer(kFooter);
  bool wants_version = false;
  const auto add_globals = [&globals](CLI::App& to) {
    Arguments::Parser parser{to};
    Arguments arguments(parser);
    arguments.option("--home", globals.home, "keep everything in this one directory",
                     Arguments::Empty::allowed);  // it has its own sentence below
    arguments.flag("--no-start", globals.no_start,
                   "do not start the daemon; doctor, health, ps, show, status, top, unload and "
                   "version never do, ask, wait, result and the others do");
    arguments.flag("--json", globals.json, "print one JSON document");
  };
  add_globals(app);
  app.add_flag("--version", wants_version, "print the version");

  struct Declared {
    CLI::App* app;
    std::unique_ptr<Arguments::Parser> parser;
    Action action;
  };
  std::vector<Declared> declared;
  for (const Command& command : commands) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    auto parser = std::make_unique<Arguments::Parser>(Arguments::Parser{*sub});
    Arguments arguments(*parser);
    Action action = command.declare(arguments);
    add_globals(*sub);
    declared.push_back({sub, std::move(parser), std::move(action)});
  }
  try {
    std::vector<std::string> words;
    bool are_options = true;
    for (int i = 1; i < argc; ++i) {
      const std::string_view word = argv[i];
      are_options = are_options && word != "--";
      // For CLI11 the word behind "--label=" would be its value.
      const bool is_empty =
          are_options && word.starts_with("--") && word.find('=') == word.size() - 1;
      words.push_back(marked(is_empty ? word.substr(0, word.size() - 1) : word));
      if (is_empty) words.emplace_back();
    }
    std::reverse(words.begin(), words.end());  // CLI11 wants them from the last to the first
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    const auto chosen = app.get_subcommands();
    parsed.output = chosen.empty() ? app.help() : chosen.front()->help("ponder");
    return parsed;
  } catch (const CLI::ParseError& error) {
    if (wants_version || (argc == 2 && std::string_view(argv[1]) == "--version")) {
      parsed.output = "ponder " PONDER_VERSION "\n";
      return parsed;
    }
    const std::string_view word = command_word(argc, argv);
    const bool known = std::any_of(commands.begin(), commands.end(),
                                   [&](const Command& each) { return each.name == word; });
    const std::string_view option = unknown_option(argc, argv);
    parsed.error = !option.empty() ? fmt::format("there is no option {}", option)
                   : known         ? error.what()
                   : word.empty()  ? "a command is missing"
                                   : fmt::format("there is no command \"{}\"", word);
    return parsed;
  }
  // An unset variable in a script would otherwise reach the user's own daemon.
  if (globals.home.empty() && app.count("--home") + chosen_count(app, "--home") > 0) {
    parsed.error = "--home must name a directory";
    return parsed;
  }
  for (Declared& each : declared) {
    if (!each.app->parsed()) continue;
    if (each.parser->rest) *each.parser->rest = unmarked(each.app->remaining());
    parsed.action = std::move(each.action);
  }
  return parsed;
}

}  // namespace ponder::cli
