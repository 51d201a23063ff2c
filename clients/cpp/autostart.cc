// Starting the local daemon from a client.
#include <fcntl.h>
#include <fmt/core.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <thread>
#include <vector>

#include "clients/cpp/connection.h"
#include "clients/cpp/daemon_client.h"
#include "clients/cpp/instance_lock.h"
#include "clients/cpp/shell_words.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/unique_fd.h"
#include "engine/base/utf8.h"

extern char** environ;

namespace ponder::client {
namespace fs = std::filesystem;
namespace {

constexpr int kPollMs = 20;
constexpr std::size_t kSaidBytesMax = 4096;

Result<bool> answers(const Places& places, const Bounds& bounds) {
  TRY(const Connection made, Connection::to_socket(places.socket, bounds));
  return made.connected();
}

/// A file without a name, for what ponderd says before it has its log. A pipe would break under a
/// daemon that keeps the descriptor after we are gone.
UniqueFd nameless_file() {
  std::string name = (fs::temp_directory_path() / "ponder-start-XXXXXX").string();
  UniqueFd fd(::mkstemp(name.data()));
  if (fd) {
    ::unlink(name.c_str());
    ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  }
  return fd;
}

/// What ponderd said last: its error's sentences, and the hints below them, which are indented.
struct LastWords {
  std::string message;
  std::string hint;
};

std::string tail_of(int fd) {
  std::string text(kSaidBytesMax, '\0');
  const off_t size = ::lseek(fd, 0, SEEK_END);
  const auto room = static_cast<off_t>(text.size());
  const ssize_t n = ::pread(fd, text.data(), text.size(), size > room ? size - room : 0);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return replace_invalid(text);
}

LastWords last_words_in(const std::string& said) {
  LastWords last;
  std::istringstream lines(said);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    if (line.starts_with("ponderd: ")) last = {};
    std::string& into = begin > 0 ? last.hint : last.message;
    if (!into.empty()) into += "; ";
    into += line.substr(begin, line.find_last_not_of(" \t\r") + 1 - begin);
  }
  return last;
}

/// The last error in the daemon's log. Its sentences begin with the program's name, as on stderr; a
/// line of the log proper names its level.
LastWords last_error_in(const fs::path& log) {
  const UniqueFd fd(::open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return {};
  LastWords last;
  bool in_sentence = false;
  std::istringstream lines(tail_of(fd.get()));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string::npos) continue;
    const bool is_hint = in_sentence && begin > 0;
    in_sentence = is_hint || line.starts_with("ponderd: ");
    if (is_hint)
      last.hint += (last.hint.empty() ? "" : "; ") + line.substr(begin);
    else if (in_sentence || line.find("[error]") != std::string::npos ||
             line.find("[critical]") != std::string::npos)
      last = {line, ""};
  }
  return last;
}

/// Whether the daemon's sentence is about its disk or its database.
bool is_about_storage(std::string_view sentence) {
  for (const char* word : {"database", "storage", "disk", "No space", "Read-only", "cannot make"})
    if (sentence.find(word) != std::string_view::npos) return true;
  return false;
}

/// The words that the daemon before this one was started with, if it did not end by itself. What
/// cannot be read is as good as none.
std::vector<std::string> words_of_the_last(const Places& places) {
  constexpr std::size_t kMost = 64 << 10;
  const UniqueFd fd(
      ::open(places.started_with.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOFOLLOW));
  std::string text(kMost, '\0');
  const ssize_t n = fd ? ::pread(fd.get(), text.data(), text.size(), 0) : 0;
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  std::vector<std::string> words;
  const auto value = parse_json(text);
  if (!value || !value->is_array()) return {};
  for (const json::value& word : value->as_array())
    if (word.is_string()) words.emplace_back(word.as_string());
  return words;
}

/// Runs `ponderd --detach` with nothing of ours but the environment: default signals, no terminal,
/// no descriptor but `said` as its stdout and stderr, a session of its own.
Result<pid_t> spawn_ponderd(const fs::path& program, const Places& places, int said) {
  std::vector<std::string> words{program.string(), "--detach"};
  if (places.explicit_home) {
    words.push_back("--home");
    words.push_back(places.state_dir.string());
  }
  for (std::string& word : words_of_the_last(places))
    words.push_back(std::move(word));
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  if (said >= 0) {
    posix_spawn_file_actions_adddup2(&actions, said, 1);
    posix_spawn_file_actions_adddup2(&actions, said, 2);
  } else {
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  }
  short flags = POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK;
#ifdef POSIX_SPAWN_SETSID
  flags |= POSIX_SPAWN_SETSID;
#endif
#if defined(__GLIBC__)
  posix_spawn_file_actions_addchdir_np(&actions, "/");
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
#elif defined(__APPLE__)
  flags |= POSIX_SPAWN_CLOEXEC_DEFAULT;
#endif
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t all, none;
  sigfillset(&all);
  sigemptyset(&none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, flags);
  pid_t pid = 0;
  const int error =
      ::posix_spawn(&pid, program.c_str(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(ErrorCode::unreachable,
                fmt::format("{} could not be started: {}", program.string(), std::strerror(error)));
  return pid;
}

Error start_failed(const Places& places, const UniqueFd& said) {
  LastWords last = said ? last_words_in(tail_of(said.get())) : LastWords{};
  if (last.message.empty()) last = last_error_in(places.logs_dir / "ponderd.log");
  std::string hint = last.hint.empty() ? "" : last.hint + "; ";
  hint += fmt::format("its log is {}; `ponder serve` shows it at work",
                      (places.logs_dir / "ponderd.log").string());
  return {is_about_storage(last.message) ? ErrorCode::storage : ErrorCode::unreachable,
          "the daemon did not start" + (last.message.empty() ? "" : ": " + last.message),
          std::move(hint)};
}

/// The starter whose turn it is: spawns and waits until the socket answers.
Result<void> start_and_wait(const fs::path& program, const Places& places, const Bounds& bounds) {
  const UniqueFd said = nameless_file();
  // One that is being killed holds the lock until its last descriptor is closed. Ours gives up
  // then.
  const bool had_holder = read_instance_lock(places.lock).held;
  TRY(pid_t pid, spawn_ponderd(program, places, said.get()));
  bool running = true;
  bool failed = false;
  bool again = false;
  for (;;) {
    int status = 0;
    if (running && ::waitpid(pid, &status, WNOHANG) == pid) {
      running = false;
      failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    // Its socket accepts before it has opened its database; only when ponderd has said how the
    // start went does an open socket mean that it serves.
    TRY(const bool up, answers(places, bounds));
    if (up && !running) return {};
    // A daemon that somebody started by hand at this moment counts as well.
    const LockHolder holder = running ? LockHolder{} : read_instance_lock(places.lock);
    if (failed && !holder.held && (again || !had_holder)) return fail(start_failed(places, said));
    if (holder.pid > 0 && is_suspended(holder.pid)) return fail(suspended_error(holder.pid));
    // Ours made way for one that has ended since.
    if (!running && !holder.held && !again) {
      TRY(pid, spawn_ponderd(program, places, said.get()));
      running = again = true;
      failed = false;
    }
    if (bounds.interrupt && bounds.interrupt->triggered())
      return fail(ErrorCode::cancelled, "interrupted");
    if (bounds.left_ms() == 0) return fail(start_failed(places, said));
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
  }
}
}  // namespace

std::string stopped_sentence(const Places& places) {
  const UniqueFd fd(::open(places.stopped_marker.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat s {};
  if (!fd || ::fstat(fd.get(), &s) != 0) return {};
  char text[64] = {};
  const ssize_t n = ::pread(fd.get(), text, sizeof text - 1, 0);
  std::string when(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  when = when.substr(0, when.find_first_not_of("0123456789-:.TZ"));
  if (when.size() < 20) when = rfc3339(static_cast<std::int64_t>(s.st_mtime) * 1000);
  return fmt::format("stopped by its owner at {}; `ponder start`", when) +
         (places.explicit_home
              ? fmt::format(" (with --home {})", shell_quoted(places.state_dir.string()))
              : "");
}

Result<void> start_daemon(const Places& places, bool by_owner, Interrupt* interrupt,
                          int timeout_ms) {
  if (by_owner) {
    std::error_code ec;
    fs::remove(places.stopped_marker, ec);
    if (ec == std::errc::not_a_directory)
      return fail(ErrorCode::storage,
                  fmt::format("{} is not a directory", places.state_dir.string()),
                  "choose another --home");
    if (ec)
      return fail(ErrorCode::storage, fmt::format("{} cannot be removed: {}",
                                                  places.stopped_marker.string(), ec.message()));
  } else if (std::string sentence = stopped_sentence(places); !sentence.empty()) {
    return fail(ErrorCode::unreachable, sentence, "ponder start");
  }
  const Bounds bounds = Bounds::within(timeout_ms, interrupt);
  const fs::path program = executable_dir() / "ponderd";
  if (::access(program.c_str(), X_OK) != 0) {
    TRY(const bool up, answers(places, bounds));
    if (up) return {};
    return fail(
        ErrorCode::unreachable,
        fmt::format("no daemon is running, and {} is not there to start one", program.string()),
        "install ponderd beside this program, or start it by hand");
  }
  TRY_VOID(make_private_dir(places.state_dir));
  const fs::path turn_file = places.state_dir / "start.lock";
  // Read-only is enough for a lock, and a file that a copy made read-only is no obstacle.
  const UniqueFd turn(::open(turn_file.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!turn)
    return fail(ErrorCode::storage,
                fmt::format("{} cannot be opened: {}", turn_file.string(), std::strerror(errno)));
  for (;;) {
    TRY(const bool up, answers(places, bounds));
    if (up) return {};
    if (::flock(turn.get(), LOCK_EX | LOCK_NB) == 0) break;
    if (interrupt && interrupt->triggered()) return fail(ErrorCode::cancelled, "interrupted");
    if (bounds.left_ms() == 0) return fail(start_failed(places, UniqueFd()));
    std::this_thread::sleep_for(std::chrono::milliseconds(kPollMs));
  }
  TRY(const bool up, answers(places, bounds));  // the one before us may have done it
  if (up) return {};
  return start_and_wait(program, places, bounds);
}

}  // namespace ponder::client
