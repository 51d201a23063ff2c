#pragma once
// What every command works with: the global options, the way to the daemon, the two outputs.
// One thread, the main one.
#include <string>
#include <string_view>

#include "clients/cli/exit_codes.h"
#include "clients/cli/terminal.h"
#include "clients/cpp/daemon_client.h"
#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::cli {

/// Options that stand before or after the command's name.
struct Globals {
  std::string home;
  bool no_start = false;
  bool json = false;
};

/// Whether a command starts the daemon when it is not running (unless --no-start).
enum class Start { allowed, never };

/// How long a request may take that the daemon answers from what it has at hand.
constexpr int kPromptlyMs = 30'000;

class Context {
 public:
  Context(const Globals& globals, client::Interrupt& interrupt)
      : globals_(globals), interrupt_(interrupt) {}

  const Globals& globals() const { return globals_; }
  bool json() const { return globals_.json; }
  /// Triggered by Ctrl-C, SIGTERM and SIGHUP.
  client::Interrupt& interrupt() { return interrupt_; }
  Terminal& terminal() { return terminal_; }

  Result<client::DaemonClient> daemon(Start start) const;
  Result<Places> places() const { return find_places(globals_.home); }

  /// A command `ponder ...` for the shell of whoever called this one, or a few words and one
  /// ("list the jobs: ponder ps -a"): with --home if it was given here. So are commands in
  /// backquotes and those joined by &&. Anything else, and what names a home already, is left as it
  /// is.
  std::string own_command(std::string command) const;
  /// The same for `next.shell` of a job's envelope.
  json::object with_own_next(json::object envelope) const;

  void out(std::string_view text) { terminal_.out(text); }
  void say(std::string_view text) { terminal_.say(text); }
  /// Says a note of the daemon's, if there is one.
  void note(const std::string& text);
  /// One JSON document with "schema_version" on stdout. Envelopes in it get their own_command.
  void document(const json::object& fields);
  /// The document of a command that takes several jobs: {"jobs": [...]}; where only one was
  /// `named`, its envelope's fields stand beside them, as for commands that take one.
  void jobs_document(const json::array& jobs, std::size_t named);
  /// Says what went wrong, as --json wants it or on stderr, and returns the exit code for it.
  int failed(const Error& error);
  int failed(const Error& error, int exit_code);
  /// failed() for a wrong command line.
  int usage(std::string sentence, std::string hint = {});

 private:
  const Globals& globals_;
  client::Interrupt& interrupt_;
  Terminal terminal_;
};

/// The error as it stands in a --json document.
json::object error_fields(const Error& error);

}  // namespace ponder::cli
