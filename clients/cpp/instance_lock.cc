#include "clients/cpp/instance_lock.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/sysmacros.h>
#endif

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "engine/base/unique_fd.h"

namespace ponder::client {
namespace fs = std::filesystem;
namespace {

int pid_in(int fd) {
  char text[32] = {};
  const ssize_t n = ::pread(fd, text, sizeof text - 1, 0);
  const long pid = n > 0 ? std::strtol(text, nullptr, 10) : 0;
  return pid > 1 && pid <= 0x7fffffff ? static_cast<int>(pid) : 0;
}

bool lives(int pid) {
  return pid > 0 && (::kill(pid, 0) == 0 || errno == EPERM);
}

#ifdef __linux__
enum class Named { no, inode, file };

/// Whether /proc/locks names a lock on the file of `s`, and whose. Only the inode number is
/// certain: overlay and btrfs show another device there than stat() does.
Named named_by_kernel(const struct stat& s, int& pid) {
  const std::string device = fmt::format("{:02x}:{:02x}:", major(s.st_dev), minor(s.st_dev));
  const std::string inode = std::to_string(s.st_ino);
  Named found = Named::no;
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    // "7: FLOCK  ADVISORY  WRITE 1234 fe:01:567 0 EOF"; a "->" before the kind: it only waits.
    std::istringstream words(line);
    std::string number, kind, advisory, mode, holder, where;
    words >> number >> kind >> advisory >> mode >> holder >> where;
    if (kind == "->" || !where.ends_with(":" + inode)) continue;
    pid = std::atoi(holder.c_str());
    if (where == device + inode) return Named::file;
    found = Named::inode;
  }
  return found;
}

bool has_open(int pid, const struct stat& s) {
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), ec)) {
    struct stat open_file {};
    if (::stat(entry.path().c_str(), &open_file) == 0 && open_file.st_dev == s.st_dev &&
        open_file.st_ino == s.st_ino)
      return true;
  }
  return false;
}
#endif
}  // namespace

LockHolder read_instance_lock(const fs::path& lock) {
  LockHolder holder;
  const UniqueFd fd(::open(lock.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat s {};
  if (!fd || ::fstat(fd.get(), &s) != 0 || !S_ISREG(s.st_mode)) return holder;
  const int written = pid_in(fd.get());
#ifdef __linux__
  int named_pid = 0;
  const Named named = named_by_kernel(s, named_pid);
  const bool open_there = lives(written) && has_open(written, s);
  // The kernel names the process that took the lock, which may be the parent of a daemon that
  // detached itself since; so the open file counts too. Without a readable /proc/locks (some
  // sandboxes) it counts alone.
  const bool silent = named == Named::no && ::access("/proc/locks", R_OK) == 0;
  if (!silent && (open_there || (named != Named::no && named_pid == written && written > 0)))
    holder.pid = written;
  holder.held = holder.pid != 0 || named == Named::file;
#else
  // A shared lock taken for an instant; the file cannot be asked otherwise here.
  holder.held = ::flock(fd.get(), LOCK_SH | LOCK_NB) != 0;
  if (holder.held && lives(written)) holder.pid = written;
#endif
  return holder;
}

}  // namespace ponder::client
