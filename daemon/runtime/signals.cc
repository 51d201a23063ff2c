#include "daemon/runtime/signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>

#include "engine/base/check.h"

namespace ponder::daemon {
namespace {

int g_pipe[2] = {-1, -1};
std::atomic<int> g_received{0};
std::atomic<bool> g_reload_told{false};
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");

void tell(int signal) {
  const int saved = errno;
  const auto number = static_cast<unsigned char>(signal);
  (void)!::write(g_pipe[1], &number, 1);
  errno = saved;
}

void on_stop(int signal) {
  if (g_received.fetch_add(1) > 0) ::_exit(128 + signal);
  tell(signal);
}

void on_reload(int signal) {
  if (!g_reload_told.exchange(true)) tell(signal);
}

void on_alarm(int) {
  ::_exit(1);
}

void handle(int signal, void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  CHECK(::sigaction(signal, &action, nullptr) == 0);
}
}  // namespace

void install_signal_handlers() {
  CHECK(::pipe2(g_pipe, O_CLOEXEC) == 0);
  handle(SIGTERM, on_stop);
  handle(SIGINT, on_stop);
  handle(SIGALRM, on_alarm);
  handle(SIGPIPE, SIG_IGN);
  handle(SIGHUP, on_reload);
}

int wait_for_signal() {
  unsigned char number = 0;
  while (true) {
    // poll, not a bare read: SA_RESTART never restarts it, and TSan runs a handler only when the
    // call that the signal came in returns.
    pollfd ready{g_pipe[0], POLLIN, 0};
    if (::poll(&ready, 1, -1) < 0) {
      CHECK(errno == EINTR);
      continue;
    }
    const ssize_t n = ::read(g_pipe[0], &number, 1);
    if (n == 1) {
      if (number == SIGHUP) g_reload_told = false;
      return number;
    }
    CHECK(n < 0 && errno == EINTR);
  }
}

void end_at_the_latest_in(unsigned seconds) {
  ::alarm(seconds);
}

}  // namespace ponder::daemon
