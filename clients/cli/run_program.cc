#include "clients/cli/run_program.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/base/unique_fd.h"

extern char** environ;

namespace ponder::cli {
namespace {
using Milliseconds = std::chrono::milliseconds;
constexpr Milliseconds kBriefly{2'000};
constexpr Milliseconds kInfoTakes{60'000};  // a large vocabulary from a busy, slow disk
constexpr std::size_t kLineBytesMax = 200;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

/// What to read of a program, and for how long it may run.
struct Reading {
  int stream = STDOUT_FILENO;  ///< or STDERR_FILENO; then what it says on stdout is dropped
  bool quiet = false;          ///< what it says on stderr is dropped
  bool one_line = false;       ///< it is killed when it has said a line
  std::optional<Milliseconds> bound = {};
  std::size_t most = kLineBytesMax;  ///< bytes that are kept
};

/// Runs the program with stdin empty and reads one stream to its end. exit_code -1: it could not be
/// run, was killed, or had not ended by the bound (it is killed then).
ProgramReport run(const std::filesystem::path& program, std::vector<std::string> arguments,
                  const Reading& reading) {
  ProgramReport report;
  int ends[2];
  if (::pipe(ends) != 0) return report;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  for (const int fd : ends)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), reading.stream);
  if (reading.stream == STDERR_FILENO)
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  else if (reading.quiet)
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  arguments.insert(arguments.begin(), program.string());
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (error != 0) return report;

  const auto began = std::chrono::steady_clock::now();
  bool ended = false;
  while (!ended) {
    int left = -1;
    if (reading.bound) {
      const auto spent =
          std::chrono::duration_cast<Milliseconds>(std::chrono::steady_clock::now() - began);
      left = static_cast<int>(std::max<std::int64_t>(0, (*reading.bound - spent).count()));
    }
    pollfd ready{read_end.get(), POLLIN, 0};
    const int got = ::poll(&ready, 1, left);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    char buffer[1 << 16];
    const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    ended = n <= 0;
    if (n > 0)
      report.said.append(buffer,
                         std::min(static_cast<std::size_t>(n),
                                  reading.most - std::min(reading.most, report.said.size())));
    if (reading.one_line && report.said.find('\n') != std::string::npos) break;
  }
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  pid_t waited = 0;
  do {
    waited = ::waitpid(pid, &status, 0);
  } while (waited < 0 && errno == EINTR);
  if (waited == pid && WIFEXITED(status)) report.exit_code = WEXITSTATUS(status);
  return report;
}
}  // namespace

int become_program(Context& context, const std::string& name,
                   const std::vector<std::string>& arguments) {
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  const std::filesystem::path program = executable_dir() / name;
  std::vector<std::string> words{program.string()};
  if (places->explicit_home) {
    words.push_back("--home");
    words.push_back(places->state_dir.string());
  }
  words.insert(words.end(), arguments.begin(), arguments.end());
  ::signal(SIGINT, SIG_DFL);
  ::execv(program.c_str(), pointers(words).data());
  return context.failed(
      {ErrorCode::internal,
       fmt::format("{} cannot be run: {}", program.string(), std::strerror(errno)),
       "install it beside this program"});
}

ProgramReport run_briefly(const std::filesystem::path& program,
                          std::vector<std::string> arguments) {
  return run(program, std::move(arguments),
             {.stream = STDERR_FILENO, .bound = kBriefly, .most = 10 * kLineBytesMax});
}

ProgramReport run_info(const std::filesystem::path& file) {
  return run(executable_dir() / "ponder-engine", {"info", "--", file.string()},
             {.stream = STDERR_FILENO, .bound = kInfoTakes, .most = 10 * kLineBytesMax});
}

ProgramReport run_for_output(const std::filesystem::path& program,
                             std::vector<std::string> arguments) {
  return run(program, std::move(arguments), {.most = 64u << 20});
}

std::string version_line_of(const std::filesystem::path& program) {
  // Killed once it has said a line: an older one may not know --version.
  const std::string said =
      run(program, {"--version"}, {.quiet = true, .one_line = true, .bound = kBriefly}).said;
  return said.substr(0, std::min(said.find('\n'), kLineBytesMax));
}

}  // namespace ponder::cli
