#include "mcp/protocol/parent_watch.h"

#include <poll.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#include <system_error>
#include <thread>
#include <utility>

namespace ponder::mcp {
namespace {
constexpr int kLookEveryMs = 500;  // where the system cannot tell

/// A descriptor that becomes readable when the process dies, or -1.
int open_process(pid_t pid) {
#if defined(SYS_pidfd_open)
  return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}
}  // namespace

void watch_parent(pid_t parent, std::function<void()> gone) {
  if (parent <= 1) return;
  const int fd = open_process(parent);
  if (::getppid() != parent) {  // looked at after the opening: the id may be another's by now
    if (fd >= 0) ::close(fd);
    return;
  }
  try {
    std::thread([parent, fd, gone = std::move(gone)] {
      while (::getppid() == parent) {
        pollfd p{fd, POLLIN, 0};
        ::poll(&p, 1, fd >= 0 ? -1 : kLookEveryMs);
      }
      gone();
    }).detach();
  } catch (const std::system_error&) {
    if (fd >= 0) ::close(fd);  // the end of input still ends the program
  }
}

}  // namespace ponder::mcp
