#include "engine/generator/worker_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

extern char** environ;

namespace ponder {
namespace {

constexpr int kChildSocket = 3;

/// posix_spawn's two objects, freed together.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
  }
};

/// What the engine needs of the daemon's environment. The rest stays here: keys of other programs
/// have no business in a process that reads model files.
std::vector<char*> engine_environment() {
  constexpr std::string_view kWanted[] = {"PATH=",   "HOME=",   "USER=",    "LANG=", "LC_",
                                          "TZ=",     "TMPDIR=", "LD_",      "XDG_",  "CUDA_",
                                          "NVIDIA_", "ASAN_",   "LSAN_",    "TSAN_", "UBSAN_",
                                          "MALLOC_", "GLIBC_",  "FAKETIME", "OMP_",  "PONDER_CPU="};
  std::vector<char*> kept;
  for (char** entry = environ; *entry; ++entry)
    for (const std::string_view name : kWanted)
      if (std::string_view(*entry).starts_with(name)) kept.push_back(*entry);
  kept.push_back(nullptr);
  return kept;
}

void plan_child(SpawnPlan& plan, int socket) {
  posix_spawn_file_actions_addopen(&plan.actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&plan.actions, STDERR_FILENO, STDOUT_FILENO);
  // Also when the numbers are the same: dup2 then only takes close-on-exec away.
  posix_spawn_file_actions_adddup2(&plan.actions, socket, kChildSocket);
#if defined(__GLIBC__)
  posix_spawn_file_actions_addclosefrom_np(&plan.actions, kChildSocket + 1);
#endif
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&plan.attributes, &all);
  posix_spawnattr_setsigmask(&plan.attributes, &none);
  posix_spawnattr_setpgroup(&plan.attributes, 0);
  posix_spawnattr_setflags(&plan.attributes,
                           POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
}

}  // namespace

std::string describe(const ProcessEnd& end) {
  if (!end.known) return "ended";
  if (end.forced) return "closed its socket and was killed";
  if (end.exited) return fmt::format("exited with code {}", end.code);
  const char* name = ::strsignal(end.signal);
  return fmt::format("was killed by signal {} ({})", end.signal, name ? name : "?");
}

Result<WorkerProcess> WorkerProcess::spawn(const std::vector<std::string>& arguments) {
  int ends[2];
#if defined(SOCK_CLOEXEC)
  const int made = ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends);
#else
  const int made = ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends);
#endif
  if (made != 0)
    return fail(ErrorCode::engine_error,
                fmt::format("cannot make a socket pair for the engine: {}", ::strerror(errno)),
                "raise the limit of open files (ulimit -n), or end programs");
  UniqueFd mine(ends[0]), theirs(ends[1]);
  for (const int fd : ends)
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  ::fcntl(mine.get(), F_SETFL, O_NONBLOCK);

  std::vector<std::string> all = arguments;
  all.insert(all.end(),
             {"--fd", std::to_string(kChildSocket), "--parent", std::to_string(::getpid())});
  std::vector<char*> argv;
  for (std::string& argument : all)
    argv.push_back(argument.data());
  argv.push_back(nullptr);

  SpawnPlan plan;
  plan_child(plan, theirs.get());
  pid_t pid = 0;
  const int problem = ::posix_spawn(&pid, argv[0], &plan.actions, &plan.attributes, argv.data(),
                                    engine_environment().data());
  if (problem != 0)
    return fail(problem == ENOENT ? ErrorCode::model_missing : ErrorCode::engine_error,
                fmt::format("cannot start {}: {}", argv[0], ::strerror(problem)),
                "build ponder-engine, or install it beside ponderd");
  return WorkerProcess(pid, std::move(mine));
}

WorkerProcess::~WorkerProcess() {
  if (pid_ > 0) reap(0);
}

void WorkerProcess::kill() {
  if (pid_ > 0) ::kill(pid_, SIGKILL);
}

ProcessEnd WorkerProcess::reap(int patience_ms) {
  socket_.reset();
  ProcessEnd end;
  if (pid_ <= 0) {
    end.known = false;
    return end;
  }
  constexpr int kStepMs = 5;
  int status = 0;
  for (int waited = 0;; waited += kStepMs) {
    const bool out_of_patience = waited >= patience_ms;
    if (out_of_patience) kill();
    const pid_t got = ::waitpid(pid_, &status, out_of_patience ? 0 : WNOHANG);
    if (got == pid_) {
      end.forced = out_of_patience;
      break;
    }
    if (got < 0 && errno != EINTR) {  // reaped by somebody else, or SIGCHLD is ignored
      pid_.value = 0;
      end.known = false;
      return end;
    }
    if (got == 0) ::poll(nullptr, 0, kStepMs);
  }
  pid_.value = 0;
  end.exited = WIFEXITED(status);
  if (end.exited)
    end.code = WEXITSTATUS(status);
  else
    end.signal = WTERMSIG(status);
  return end;
}

}  // namespace ponder
