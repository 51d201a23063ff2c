// ponder-mcp: Ponder's tools for agents, as an MCP server on stdio. It holds nothing: the daemon
// owns the jobs, so this process may be started for a probe, killed in a call and started again.
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <CLI/CLI.hpp>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/log.h"
#include "mcp/daemon_door.h"
#include "mcp/protocol/line_reader.h"
#include "mcp/protocol/line_writer.h"
#include "mcp/protocol/parent_watch.h"
#include "mcp/protocol/server.h"
#include "mcp/tools/registry.h"

namespace {
namespace fs = std::filesystem;
using namespace ponder::mcp;

constexpr std::size_t kLineBytesMax = 8u << 20;
// After the end of input, answers that are nearly there are still sent; the whole exit stays
// within 100 ms.
constexpr int kLastAnswersMs = 60;

struct Arguments {
  std::string home;
  bool no_start = false;
  std::vector<std::string> roots;
};

void end_now(int) {
  _exit(0);
}

/// Clients end a server by SIGINT, SIGTERM or SIGHUP, some 100 ms apart, and there is nothing here
/// to save: end in the handler, whatever the threads are waiting for.
void end_on_signals() {
  sigset_t ours;
  sigemptyset(&ours);
  struct sigaction action {};
  action.sa_handler = end_now;
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    sigaction(number, &action, nullptr);
    sigaddset(&ours, number);
  }
  sigprocmask(SIG_UNBLOCK, &ours, nullptr);  // a parent may have left them blocked
  signal(SIGPIPE, SIG_IGN);
}

/// Keeps stdout for the protocol: the real one moves to a private descriptor, and what any library
/// prints goes to stderr.
int take_stdout() {
  const int own = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
  if (own < 0 || ::dup2(STDERR_FILENO, STDOUT_FILENO) < 0) return -1;
  return own;
}

/// Descriptors 0 to 2 always exist, so that no file of ours can become one of them.
void fill_standard_descriptors() {
  for (;;) {
    const int fd = ::open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd <= STDERR_FILENO) continue;
    ::close(fd);
    return;
  }
}

bool stdin_has_hung_up() {
  pollfd p{STDIN_FILENO, 0, 0};
  return ::poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
}

std::vector<fs::path> absolute_roots(const std::vector<std::string>& given) {
  std::vector<fs::path> roots;
  std::error_code ec;
  for (const std::string& root : given)
    roots.push_back(fs::absolute(root, ec));
  return roots;
}

/// The first of `roots` that is no directory; a root that is not there would refuse every file
/// later, one by one.
const fs::path* wrong_root(const std::vector<fs::path>& roots) {
  std::error_code ec;
  for (const fs::path& root : roots)
    if (!fs::is_directory(root, ec)) return &root;
  return nullptr;
}

int serve(const std::vector<fs::path>& roots, const ponder::client::ClientOptions& options,
          pid_t parent) {
  const int out = take_stdout();
  if (out < 0) {
    std::fputs("ponder-mcp: stdout cannot be taken\n", stderr);
    return 1;
  }
  std::error_code ec;
  const fs::path here = fs::current_path(ec);
  const Workspace workspace(ec ? fs::path("/") : here, roots);
  DaemonDoor daemon(options);
  const ToolContext context{daemon,
                            workspace,
                            ponder::system_clock(),
                            shell_command("ponder", options),
                            shell_command("ponderd", options),
                            options.places.config_file.string(),
                            PONDER_VERSION};
  const ToolRegistry tools(context);
  LineWriter writer(out, stdin_has_hung_up, [] { _exit(0); });
  Server server({.version = PONDER_VERSION, .instructions = std::string(instructions())}, writer,
                tools);
  LineReader reader(STDIN_FILENO, kLineBytesMax);
  for (;;) {
    const LineReader::Line line = reader.next();
    if (line.kind == LineReader::Kind::end) break;
    if (const pid_t client = std::exchange(parent, 0); client > 0)
      watch_parent(client, [] { _exit(0); });
    if (line.kind == LineReader::Kind::too_long) {
      server.handle_too_long(kLineBytesMax);
    } else {
      server.handle_line(line.text);
    }
  }
  server.wait_idle(kLastAnswersMs);
  _exit(0);  // calls may still wait for the daemon; their jobs go on without us
}
}  // namespace

int main(int argc, char** argv) {
  const pid_t parent = ::getppid();
  end_on_signals();
  fill_standard_descriptors();
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 2);  // a heap per waiting thread would be most of the memory used here
#endif
  CLI::App app{"Ponder's tools for agents: an MCP server on stdio"};
  Arguments arguments;
  app.add_option("--home", arguments.home, "directory that holds everything of Ponder's");
  app.add_flag("--no-start", arguments.no_start, "never start the daemon");
  app.add_option("--root", arguments.roots,
                 "a directory below which files may be read and written, besides the working one "
                 "(repeatable)")
      ->allow_extra_args(false);
  app.set_version_flag("--version", std::string("ponder-mcp ") + PONDER_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (app.count("--home") > 0 && arguments.home.empty()) {
    std::fputs("ponder-mcp: --home must name a directory\n", stderr);
    return 2;
  }
  ponder::log_open("ponder-mcp");
  const auto options = ponder::client::client_options(arguments.home, !arguments.no_start);
  if (!options) {
    std::fprintf(stderr, "ponder-mcp: %s\n", options.error().message.c_str());
    return 2;
  }
  const std::vector<fs::path> roots = absolute_roots(arguments.roots);
  if (const fs::path* wrong = wrong_root(roots)) {
    std::fprintf(stderr, "ponder-mcp: --root %s is not a directory that can be read\n",
                 wrong->c_str());
    return 2;
  }
  return serve(roots, *options, parent);
}
