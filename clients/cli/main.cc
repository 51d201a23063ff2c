// `ponder`: the command line. stdout is data, stderr is talk.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include "clients/cli/commands.h"

namespace {
ponder::client::Interrupt* on_ctrl_c = nullptr;
void handle_sigint(int) {
  on_ctrl_c->trigger();
}

/// Descriptors 0 to 2 must be taken, or the first socket would become stdout.
void open_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd)
    if (::fcntl(fd, F_GETFD) < 0) ::open("/dev/null", fd == 0 ? O_RDONLY : O_WRONLY);
}
}  // namespace

int main(int argc, char** argv) {
  using namespace ponder::cli;
  open_standard_descriptors();
  ponder::client::Interrupt interrupt;
  on_ctrl_c = &interrupt;
  struct sigaction action {};
  action.sa_handler = handle_sigint;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // a second Ctrl-C ends the program at once
  ::sigaction(SIGINT, &action, nullptr);

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
  return exit_code;
}
