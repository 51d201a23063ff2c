// `ponder`: the command line. stdout is data, stderr is talk.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "clients/cli/commands.h"

namespace {
ponder::client::Interrupt* on_signal = nullptr;
volatile std::sig_atomic_t received = 0;
void handle_signal(int number) {
  received = number;
  on_signal->trigger();
}

/// Ctrl-C, a termination and a closed terminal all mean: leave, and say where the job is.
void handle_signals() {
  struct sigaction action {};
  action.sa_handler = handle_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second one ends the program at once
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction before {};
    ::sigaction(number, nullptr, &before);
    if (number == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup
    ::sigaction(number, &action, nullptr);
  }
}

/// Descriptors 0 to 2 must be taken, or the first socket would become stdout. A closed stdout
/// refuses what is written to it, since a script counts on that.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 2 ? O_WRONLY : O_RDONLY);
}
}  // namespace

int main(int argc, char** argv) {
  using namespace ponder::cli;
  open_standard_descriptors();
  ponder::client::Interrupt interrupt;
  on_signal = &interrupt;
  handle_signals();

  Globals globals;
  const ParsedLine line = parse_line(argc, argv, all_commands(), globals);
  globals.json |= line.wants_json;
  Context context(globals, interrupt);
  int exit_code = kDone;
  if (line.action) {
    exit_code = line.action(context);
  } else if (!line.error.empty()) {
    exit_code = context.usage(line.error,
                              "`ponder --help` and `ponder COMMAND --help` list what there is; "
                              "put -- before a text that begins with -");
  } else {
    context.out(line.output);
  }
  if (!context.terminal().out_ok()) {
    context.say("ponder: the output could not be written");
    return kStorage;
  }
  if (exit_code == kInterrupted && received != 0) return 128 + received;
  return exit_code;
}
