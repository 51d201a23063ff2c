#include "daemon/runtime/instance_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

namespace ponder::daemon {
namespace {

/// The pid of a living holder, or 0 if it has not written it yet.
long read_pid(int fd) {
  char text[32] = {};
  if (::pread(fd, text, sizeof text - 1, 0) <= 0) return 0;
  const long pid = std::strtol(text, nullptr, 10);
  // What a killed holder left behind is there until the next one has written.
  return pid > 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM) ? pid : 0;
}

tl::unexpected<Error> taken(int fd, const std::filesystem::path& file) {
  long pid = read_pid(fd);
  // Between the winner's lock and its write lies next to no time.
  for (int i = 0; pid == 0 && i < 50; ++i) {
    ::usleep(2'000);
    pid = read_pid(fd);
  }
  Error error{ErrorCode::storage,
              pid > 0 ? fmt::format("already running: another ponderd (pid {}) serves {}", pid,
                                    file.parent_path().string())
                      : fmt::format("already running: another ponderd serves {}",
                                    file.parent_path().string()),
              "stop it with `ponder stop`, or give another --home"};
  error.details[InstanceLock::kHeld] = pid;
  return fail(std::move(error));
}

/// Opens the lock file. One of ours that was made read-only by a copy or a restore is made ours
/// again: the directory is private, so nobody else can have put another in its place.
UniqueFd open_file(const std::filesystem::path& file) {
  constexpr int kHow = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
  UniqueFd fd(::open(file.c_str(), kHow, 0600));
  struct stat s {};
  if (fd || errno != EACCES || ::lstat(file.c_str(), &s) != 0 || !S_ISREG(s.st_mode) ||
      s.st_uid != ::geteuid() || ::chmod(file.c_str(), 0600) != 0)
    return fd;
  fd.reset(::open(file.c_str(), kHow, 0600));
  return fd;
}

bool is_file_at(int fd, const std::filesystem::path& file) {
  struct stat ours {};
  struct stat there {};
  return ::fstat(fd, &ours) == 0 && ::lstat(file.c_str(), &there) == 0 &&
         ours.st_ino == there.st_ino && ours.st_dev == there.st_dev;
}
}  // namespace

bool InstanceLock::is_in_place() const {
  return is_file_at(fd_.get(), file_);
}

Result<InstanceLock> InstanceLock::acquire(const std::filesystem::path& file) {
  for (int round = 0; round < 10; ++round) {
    UniqueFd fd = open_file(file);
    if (!fd)
      return fail(ErrorCode::storage,
                  fmt::format("cannot open {}: {}", file.string(), std::strerror(errno)),
                  "make it a file of yours that you may write, or choose another --home");
    if (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return taken(fd.get(), file);
    if (!is_file_at(fd.get(), file))
      continue;  // somebody removed the file under us; a lock on it protects nothing
    ::fchmod(fd.get(), 0600);
    const std::string text = fmt::format("{}\n", ::getpid());
    if (::ftruncate(fd.get(), 0) != 0 ||
        ::pwrite(fd.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
      return fail(ErrorCode::storage,
                  fmt::format("cannot write {}: {}", file.string(), std::strerror(errno)),
                  "free some disk space, or choose another --home");
    return InstanceLock(std::move(fd), file);
  }
  return fail(ErrorCode::storage, fmt::format("{} is replaced again and again", file.string()),
              "end whatever removes it, or choose another --home");
}

InstanceLock::~InstanceLock() {
  if (fd_ && ::ftruncate(fd_.get(), 0) != 0) return;  // the kernel frees the lock either way
}

}  // namespace ponder::daemon
