#pragma once
// The command line, parsed: a small face of the CLI11 library, which only arguments.cc includes.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "clients/cli/context.h"

namespace ponder::cli {

/// What a command does once its options are read; returns the exit code.
using Action = std::function<int(Context&)>;

/// Where a command declares its options. What they are read into must live as long as the Action
/// (keep it in a shared_ptr that the Action holds). `names` are as in "-o,--out".
class Arguments {
 public:
  struct Parser;
  explicit Arguments(Parser& parser) : parser_(parser) {}

  /// An empty text is an unset variable of somebody's script and a wrong line, unless it is allowed
  /// because it says the same as leaving the option out.
  enum class Empty { refused, allowed };
  void option(const std::string& names, std::string& into, const std::string& help,
              Empty empty = Empty::refused);
  void option(const std::string& names, std::optional<std::int64_t>& into, const std::string& help);
  void option(const std::string& names, std::optional<double>& into, const std::string& help);
  /// Repeatable, one value each time, none of them empty.
  void option(const std::string& names, std::vector<std::string>& into, const std::string& help);
  void flag(const std::string& names, bool& into, const std::string& help);
  /// The words that are no options; at least `least` of them, at most `most` (0: any number).
  void words(const std::string& name, std::vector<std::string>& into, int least, int most,
             const std::string& help);
  /// Takes every option and word that is not declared, in order, for another program.
  void rest(std::vector<std::string>& into);

 private:
  Parser& parser_;
};

struct Command {
  std::string_view name;
  std::string_view summary;
  Action (*declare)(Arguments& arguments);
};

struct ParsedLine {
  Action action;            ///< empty: `output` is the answer (help, version) or `error` is set
  std::string output;       ///< for stdout
  std::string error;        ///< a sentence about a wrong command line
  bool wants_json = false;  ///< --json was given, also on a line that is otherwise wrong
};

/// Parses `argv` for one of `commands`; --home, --no-start and --json go to `globals`.
ParsedLine parse_line(int argc, const char* const* argv, std::span<const Command> commands,
                      Globals& globals);

}  // namespace ponder::cli
