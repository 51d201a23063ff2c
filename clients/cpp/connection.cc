#include "clients/cpp/connection.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "engine/base/clock.h"

namespace ponder::client {
namespace fs = std::filesystem;
namespace {

// How long a silent peer may be before we look whether it is stopped (SIGSTOP, a debugger).
constexpr int kLookAtPeerMs = 1000;

#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_NOSIGNAL;
#else
constexpr int kSendFlags = 0;  // SO_NOSIGPIPE does it there
#endif

UniqueFd new_socket(int family) {
  UniqueFd fd(::socket(family, SOCK_STREAM, 0));
  if (!fd) return fd;
  ::fcntl(fd.get(), F_SETFD, FD_CLOEXEC);
  ::fcntl(fd.get(), F_SETFL, ::fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
#ifdef SO_NOSIGPIPE
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
  return fd;
}

/// Waits for `events` on `fd` (-1: only for time and the interrupt). timed_out when the bound or
/// `slice_ms` (>= 0) has passed, whichever is sooner; `slice_over` says that it was the slice.
Result<void> wait_on(int fd, short events, const Bounds& bounds, int slice_ms, bool& slice_over) {
  for (;;) {
    if (bounds.interrupt && bounds.interrupt->triggered())
      return fail(ErrorCode::cancelled, "interrupted");
    const int left = bounds.left_ms();
    const bool by_slice = slice_ms >= 0 && (left < 0 || slice_ms < left);
    pollfd fds[2] = {{fd, events, 0}, {-1, POLLIN, 0}};
    if (bounds.interrupt) fds[1].fd = bounds.interrupt->wait_fd();
    const int ready = ::poll(fds, 2, by_slice ? slice_ms : left);
    if (ready < 0 && errno != EINTR)
      return fail(ErrorCode::internal, fmt::format("poll failed: {}", std::strerror(errno)));
    if (ready < 0 || fds[1].revents != 0) continue;
    if (fds[0].revents != 0) return {};
    if (ready == 0) {
      slice_over = by_slice;
      return fail(ErrorCode::timed_out, "the daemon did not answer in time",
                  "`ponder health` says how it is; its log is in logs/ponderd.log");
    }
  }
}

Result<void> pause(int ms, const Bounds& bounds) {
  bool slice_over = false;
  auto waited = wait_on(-1, 0, bounds, ms, slice_over);
  return slice_over ? Result<void>{} : waited;
}

int pid_of_peer(int fd) {
#ifdef SO_PEERCRED
  struct ucred peer {};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) return peer.pid;
#endif
  (void)fd;
  return 0;
}

/// A socket of ours that a copy or a restore made read-only keeps us out, whether somebody listens
/// or not. True: it does not any more.
bool open_to_owner(const fs::path& path) {
  struct stat s {};
  return ::lstat(path.c_str(), &s) == 0 && S_ISSOCK(s.st_mode) && s.st_uid == ::geteuid() &&
         (s.st_mode & 0200) == 0 && ::chmod(path.c_str(), 0600) == 0;
}

/// The address of a socket whose path may be longer than an address holds. `keep` owns what the
/// address refers to and must live until connect() has returned.
Result<sockaddr_un> socket_address(const fs::path& path, UniqueFd& keep) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = path.string();
  if (name.size() >= sizeof address.sun_path) {
#ifdef O_PATH
    keep.reset(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (keep) name = fmt::format("/proc/self/fd/{}/{}", keep.get(), path.filename().string());
    if (!keep && errno == ENOENT) return address;  // an empty path: nobody listens
#endif
    if (name.size() >= sizeof address.sun_path)
      return fail(ErrorCode::unreachable,
                  fmt::format("the socket's path has {} bytes and a socket address holds {}",
                              path.string().size(), sizeof address.sun_path - 1),
                  "choose a shorter --home");
  }
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  return address;
}

Result<void> finish_connect(int fd, const Bounds& bounds, int& error) {
  bool slice_over = false;
  TRY_VOID(wait_on(fd, POLLOUT, bounds, -1, slice_over));
  socklen_t size = sizeof error;
  if (::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  return {};
}

}  // namespace

bool is_suspended(int pid) {
#ifdef __linux__
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(
      std::fopen(fmt::format("/proc/{}/stat", pid).c_str(), "re"), &std::fclose);
  char text[512] = {};
  if (!file || std::fread(text, 1, sizeof text - 1, file.get()) == 0) return false;
  const char* name_end = std::strrchr(text, ')');  // the name may hold anything, also ") T"
  return name_end && std::strlen(name_end) > 2 && (name_end[2] == 'T' || name_end[2] == 't');
#else
  (void)pid;
  return false;
#endif
}

Error suspended_error(int pid) {
  return {ErrorCode::unreachable,
          fmt::format("the daemon (process {}) is suspended and cannot answer", pid),
          fmt::format("kill -CONT {}", pid)};
}

Bounds Bounds::within(int timeout_ms, Interrupt* interrupt) {
  return {timeout_ms > 0 ? system_clock().steady_ms() + timeout_ms : 0, interrupt};
}

Bounds Bounds::no_longer_than(int timeout_ms) const {
  const std::int64_t then = system_clock().steady_ms() + timeout_ms;
  return {deadline_ms == 0 ? then : std::min(deadline_ms, then), interrupt};
}

int Bounds::left_ms() const {
  if (deadline_ms == 0) return -1;
  return static_cast<int>(std::max<std::int64_t>(0, deadline_ms - system_clock().steady_ms()));
}

Result<Connection> Connection::to_socket(const fs::path& path, const Bounds& bounds) {
  Connection made;
  UniqueFd directory;
  TRY(const sockaddr_un address, socket_address(path, directory));
  if (address.sun_path[0] == '\0') return made;
  bool mended = false;
  for (;;) {
    UniqueFd fd = new_socket(AF_UNIX);
    if (!fd) return fail(ErrorCode::internal, fmt::format("no socket: {}", std::strerror(errno)));
    int error = 0;
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      error = errno;
    if (error == EINPROGRESS || error == EINTR) {
      error = 0;
      TRY_VOID(finish_connect(fd.get(), bounds, error));
    }
    if (error == 0) {
      made.peer_pid_ = pid_of_peer(fd.get());
      made.fd_ = std::move(fd);
      return made;
    }
    if (error == ENOENT || error == ECONNREFUSED || error == ENOTDIR) return made;
    if (error == EACCES && !mended && open_to_owner(path)) {
      mended = true;
      continue;
    }
    if (error != EAGAIN)  // EAGAIN: its queue of connections is full for the moment
      return fail(ErrorCode::unreachable,
                  fmt::format("the daemon's socket {} cannot be used: {}", path.string(),
                              std::strerror(error)),
                  "`ponder doctor` looks at the permissions");
    TRY_VOID(pause(10, bounds));
  }
}

Result<Connection> Connection::to_host(const std::string& host, const std::string& port,
                                       const Bounds& bounds) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  if (const int rc = ::getaddrinfo(host.c_str(), port.c_str(), &wanted, &list); rc != 0)
    return fail(ErrorCode::unreachable,
                fmt::format("the host {} is not known: {}", host, ::gai_strerror(rc)),
                "check PONDER_URL");
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(list, &::freeaddrinfo);
  int error = ECONNREFUSED;
  for (const addrinfo* a = list; a; a = a->ai_next) {
    UniqueFd fd = new_socket(a->ai_family);
    if (!fd) continue;
    const int on = 1;
    ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    error = ::connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS || error == EINTR) {
      error = 0;
      TRY_VOID(finish_connect(fd.get(), bounds, error));
    }
    if (error == 0) {
      Connection made;
      made.fd_ = std::move(fd);
      return made;
    }
  }
  return fail(ErrorCode::unreachable,
              fmt::format("no daemon at {} port {}: {}", host, port, std::strerror(error)),
              "start it on that machine, or check PONDER_URL");
}

Result<void> Connection::wait_for(short events, const Bounds& bounds) const {
  for (;;) {
    bool slice_over = false;
    auto waited =
        wait_on(fd_.get(), events, bounds, peer_pid_ > 0 ? kLookAtPeerMs : -1, slice_over);
    if (waited || !slice_over) return waited;
    if (is_suspended(peer_pid_)) return fail(suspended_error(peer_pid_));
  }
}

Result<void> Connection::write_all(std::string_view bytes, const Bounds& bounds) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), kSendFlags);
    if (n > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK)
      return fail(ErrorCode::unreachable,
                  fmt::format("the daemon closed the connection: {}", std::strerror(errno)),
                  "try again");
    TRY_VOID(wait_for(POLLOUT, bounds));
  }
  return {};
}

Result<std::size_t> Connection::read_some(char* into, std::size_t size, const Bounds& bounds) {
  for (;;) {
    // Waiting comes first, so that an interrupt or a deadline ends also a peer that never pauses.
    TRY_VOID(wait_for(POLLIN, bounds));
    const ssize_t n = ::recv(fd_.get(), into, size, 0);
    if (n >= 0) return static_cast<std::size_t>(n);
    if (errno == ECONNRESET) return std::size_t{0};
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return fail(ErrorCode::unreachable,
                  fmt::format("reading from the daemon failed: {}", std::strerror(errno)),
                  "try again");
  }
}

}  // namespace ponder::client
