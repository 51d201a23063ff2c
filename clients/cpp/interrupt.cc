#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "clients/cpp/daemon_client.h"
#include "engine/base/check.h"

namespace ponder::client {

Interrupt::Interrupt() {
  int ends[2];
  CHECK_MSG(::pipe(ends) == 0, "no file descriptors are left for a pipe");
  for (const int fd : ends) {
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    ::fcntl(fd, F_SETFL, O_NONBLOCK);
  }
  read_fd_ = ends[0];
  write_fd_ = ends[1];
}

Interrupt::~Interrupt() {
  ::close(read_fd_);
  ::close(write_fd_);
}

void Interrupt::trigger() {
  static_assert(std::atomic<bool>::is_always_lock_free);  // else not safe in a signal handler
  const int saved = errno;
  if (!flag_.exchange(true)) {
    // The byte is never read, so that every poll from now on sees it.
    [[maybe_unused]] const ssize_t n = ::write(write_fd_, "!", 1);
  }
  errno = saved;
}

}  // namespace ponder::client
