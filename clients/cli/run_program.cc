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
#include <cstring>

#include "engine/base/unique_fd.h"

extern char** environ;

namespace ponder::cli {
namespace {
constexpr auto kVersionBound = std::chrono::milliseconds(2'000);
constexpr std::size_t kLineBytesMax = 200;

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
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
  ProgramReport report;
  int ends[2];
  if (::pipe(ends) != 0) return report;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  for (const int fd : ends)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 2);
  arguments.insert(arguments.begin(), program.string());
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (error != 0) return report;
  const auto until = std::chrono::steady_clock::now() + kVersionBound;
  bool ended = false;
  while (!ended) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ready{read_end.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
    char buffer[kLineBytesMax];
    const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
    ended = n <= 0;
    if (n > 0 && report.said.size() < 10 * kLineBytesMax)
      report.said.append(buffer, static_cast<std::size_t>(n));
  }
  if (!ended) ::kill(pid, SIGKILL);
  int status = 0;
  if (::waitpid(pid, &status, 0) == pid && WIFEXITED(status))
    report.exit_code = WEXITSTATUS(status);
  return report;
}

ProgramReport run_for_output(const std::filesystem::path& program,
                             std::vector<std::string> arguments) {
  ProgramReport report;
  int ends[2];
  if (::pipe(ends) != 0) return report;
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  for (const int fd : ends)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  arguments.insert(arguments.begin(), program.string());
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers(arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (error != 0) return report;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    report.said.append(buffer, static_cast<std::size_t>(n));
    if (report.said.size() > (64u << 20)) break;
  }
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status)) report.exit_code = WEXITSTATUS(status);
  return report;
}

std::string version_line_of(const std::filesystem::path& program) {
  int ends[2];
  if (::pipe(ends) != 0) return {};
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  for (const int fd : ends)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, write_end.get(), 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::vector<std::string> words{program.string(), "--version"};
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, nullptr, pointers(words).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  write_end.reset();
  if (error != 0) return {};
  std::string line;
  const auto until = std::chrono::steady_clock::now() + kVersionBound;
  while (line.find('\n') == std::string::npos && line.size() < kLineBytesMax) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd ready{read_end.get(), POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) break;
    char buffer[kLineBytesMax];
    const ssize_t n = ::read(read_end.get(), buffer, sizeof buffer);
    if (n <= 0) break;
    line.append(buffer, static_cast<std::size_t>(n));
  }
  ::kill(pid, SIGKILL);  // it has said what we wanted, or does not know --version
  int status = 0;
  ::waitpid(pid, &status, 0);
  return line.substr(0, std::min(line.find('\n'), kLineBytesMax));
}

}  // namespace ponder::cli
