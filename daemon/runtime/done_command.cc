#include "daemon/runtime/done_command.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "engine/base/log.h"

namespace ponder::daemon {
namespace {

constexpr std::size_t kMostWaiting = 1000;
constexpr auto kLookEvery = std::chrono::milliseconds(20);  // no signal tells a thread of its child

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (std::string& word : words)
    out.push_back(word.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> bare_environment() {
  std::vector<std::string> out;
  for (const char* name : {"PATH", "HOME", "LANG"})
    if (const char* value = std::getenv(name)) out.push_back(fmt::format("{}={}", name, value));
  return out;
}

/// Its own process group, default signals, /dev/null as the standard descriptors. All others of
/// this process are close-on-exec.
int spawn(pid_t& pid, std::vector<std::string> argv) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
  std::vector<std::string> environment = bare_environment();
  const int error = ::posix_spawnp(&pid, argv.front().c_str(), &files, &attributes,
                                   pointers(argv).data(), pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}
}  // namespace

DoneCommand::DoneCommand(std::vector<std::string> argv, std::chrono::milliseconds bound)
    : bound_(bound) {
  set(std::move(argv));
}

DoneCommand::~DoneCommand() {
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void DoneCommand::set(std::vector<std::string> argv) {
  const std::lock_guard lock(mutex_);
  argv_ = std::move(argv);
  if (!argv_.empty() && !thread_.joinable()) thread_ = std::thread([this] { loop(); });
}

void DoneCommand::run(const std::string& id, std::string_view state) {
  const std::lock_guard lock(mutex_);
  if (argv_.empty()) return;
  std::vector<std::string> argv = argv_;
  argv.push_back(id);
  argv.emplace_back(state);
  if (waiting_.size() >= kMostWaiting) {
    waiting_.pop_front();
    log_warn("on_done does not keep up: the command for one job was dropped");
  }
  waiting_.push_back(std::move(argv));
  changed_.notify_all();
}

void DoneCommand::loop() {
  while (true) {
    std::vector<std::string> argv;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      if (over_) return;
      argv = std::move(waiting_.front());
      waiting_.pop_front();
    }
    run_now(argv);
  }
}

void DoneCommand::run_now(const std::vector<std::string>& argv) {
  pid_t pid = 0;
  if (const int error = spawn(pid, argv); error != 0)
    return log_warn(
        fmt::format("on_done: {} cannot be run: {}", argv.front(), std::strerror(error)));
  const auto until = std::chrono::steady_clock::now() + bound_;
  int status = 0;
  while (::waitpid(pid, &status, WNOHANG) == 0) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLookEvery, [this] { return over_; });
    const bool late = std::chrono::steady_clock::now() >= until;
    if (!over_ && !late) continue;
    ::kill(-pid, SIGKILL);
    lock.unlock();
    ::waitpid(pid, &status, 0);
    if (late)
      log_warn(fmt::format("on_done: {} was killed after {:g} s", argv.front(),
                           std::chrono::duration<double>(bound_).count()));
    return;
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    log_warn(fmt::format("on_done: {} exited with {}", argv.front(), WEXITSTATUS(status)));
}

}  // namespace ponder::daemon
