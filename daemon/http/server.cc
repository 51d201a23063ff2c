#include "daemon/http/server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <cerrno>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "daemon/http/session.h"
#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/thread_latency.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {
constexpr int kAcceptsAtOnce = 32;
constexpr milliseconds kOutOfDescriptorsPause{100};
constexpr milliseconds kTrimAfter{500};

tl::unexpected<Error> system_failure(const std::string& what, std::string hint) {
  return fail(ErrorCode::storage, fmt::format("{}: {}", what, std::strerror(errno)),
              std::move(hint));
}
constexpr const char* kMoreDescriptors =
    "raise the limit of open files (ulimit -n), or end programs";
constexpr const char* kOtherHome =
    "make the directory writable for its owner, or choose another --home";

struct Listener {
  Listener(asio::io_context& io, int fd, Door d, int f, std::uint16_t p)
      : descriptor(io, fd), pause(io), door(d), family(f), port(p) {}
  asio::posix::stream_descriptor descriptor;
  asio::steady_timer pause;
  Door door;
  int family;
  std::uint16_t port;
};

bool peer_is_us(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return false;
  return peer.uid == ::geteuid() || peer.uid == 0;
}

/// An address literal as a sockaddr; false if it is none.
bool read_address(const std::string& address, std::uint16_t port, sockaddr_storage& storage,
                  socklen_t& size) {
  storage = {};
  auto* v4 = reinterpret_cast<sockaddr_in*>(&storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&storage);
  if (::inet_pton(AF_INET, address.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    size = sizeof *v4;
    return true;
  }
  if (::inet_pton(AF_INET6, address.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    size = sizeof *v6;
    return true;
  }
  return false;
}
}  // namespace

class Server::Impl {
 public:
  explicit Impl(ServerLimits l)
      : limits(l), prep(2), context{io, prep, limits}, work(asio::make_work_guard(io)) {
#if defined(__GLIBC__)
    // What is larger has pages of its own, which go back to the system when it is freed. Left to
    // itself glibc raises this with the largest block it has seen: 87 MiB stayed after bodies of 5.
    ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
    context.trim_soon = [this] { trim_soon(); };
  }

  ~Impl() {
    stop();
  }

  Result<void> listen_unix(const std::filesystem::path& path);
  Result<std::uint16_t> listen_tcp(const std::string& address, std::uint16_t port);
  void wait_for_clients(const std::shared_ptr<Listener>& listener);
  void accept_clients(const std::shared_ptr<Listener>& listener);
  void welcome(UniqueFd client, const Listener& listener);
  void trim_soon();
  void close_listeners();
  void stop();

  /// Runs `action` on the io thread and waits for it.
  template <class Action>
  void on_io(Action action) {
    if (!thread.joinable()) return action();
    std::promise<void> done;
    asio::post(io, [&] {
      action();
      done.set_value();
    });
    done.get_future().wait();
  }

  const ServerLimits limits;
  asio::io_context io{1};
  asio::thread_pool prep;
  asio::steady_timer trim_timer{io};
  bool trim_pending = false;
  SessionContext context;
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<std::shared_ptr<Listener>> listeners;
  std::filesystem::path socket_path;
  struct stat socket_file {};  ///< what bind() made there
  std::thread thread;
};

Result<void> Server::Impl::listen_unix(const std::filesystem::path& path) {
  struct stat found {};
  if (::lstat(path.c_str(), &found) == 0) {
    if (!S_ISSOCK(found.st_mode))
      return fail(ErrorCode::storage, fmt::format("{} is in the way: not a socket", path.string()),
                  "move it aside");
    ::unlink(path.c_str());
  }
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_failure("cannot make a Unix socket", kMoreDescriptors);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string name = path.string();
  UniqueFd directory;
  if (name.size() >= sizeof address.sun_path) {
    // The kernel takes 107 bytes; a path through the directory's descriptor is always short.
    directory.reset(::open(path.parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return system_failure("cannot open the socket's directory", kOtherHome);
    name = fmt::format("/proc/self/fd/{}/{}", directory.get(), path.filename().string());
    if (name.size() >= sizeof address.sun_path)
      return fail(ErrorCode::bad_request, "the socket's file name is too long",
                  "choose a shorter one");
  }
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return system_failure(fmt::format("cannot bind {}", path.string()), kOtherHome);
  if (::chmod(path.c_str(), 0600) != 0 || ::lstat(path.c_str(), &socket_file) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0)
    return system_failure(fmt::format("cannot listen on {}", path.string()), kOtherHome);
  socket_path = path;
  listeners.push_back(std::make_shared<Listener>(io, fd.release(), Door::unix_socket, AF_UNIX, 0));
  return {};
}

Result<std::uint16_t> Server::Impl::listen_tcp(const std::string& address, std::uint16_t port) {
  sockaddr_storage storage{};
  socklen_t size = 0;
  if (!read_address(address, port, storage, size))
    return fail(ErrorCode::bad_request, fmt::format("\"{}\" is not an IP address", address),
                "write it as 127.0.0.1 or ::1");
  UniqueFd fd(::socket(storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return system_failure("cannot make a TCP socket", kMoreDescriptors);
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (storage.ss_family == AF_INET6)
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  const std::string where = storage.ss_family == AF_INET6 ? fmt::format("[{}]:{}", address, port)
                                                          : fmt::format("{}:{}", address, port);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&storage), size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE)
      return fail(ErrorCode::storage, fmt::format("{} is taken by another program", where),
                  "choose another --port");
    return system_failure(
        fmt::format("cannot listen on {}", where),
        "name an address of this machine and a port that you may use (--listen, --port)");
  }
  size = sizeof storage;
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&storage), &size);
  const std::uint16_t bound =
      ntohs(storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&storage)->sin_port);
  listeners.push_back(
      std::make_shared<Listener>(io, fd.release(), Door::tcp, storage.ss_family, bound));
  return bound;
}

void Server::Impl::wait_for_clients(const std::shared_ptr<Listener>& listener) {
  listener->descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                                  [this, listener](const error_code& ec) {
                                    if (!ec) accept_clients(listener);
                                  });
}

// accept4 by hand: a worker that is forked at this moment must not inherit the connection.
void Server::Impl::accept_clients(const std::shared_ptr<Listener>& listener) {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd client(::accept4(listener->descriptor.native_handle(), nullptr, nullptr,
                              SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client) {
      welcome(std::move(client), *listener);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) break;
    log_warn(fmt::format("cannot accept a connection: {}", std::strerror(errno)));
    listener->pause.expires_after(kOutOfDescriptorsPause);
    listener->pause.async_wait([this, listener](const error_code& ec) {
      if (!ec) wait_for_clients(listener);
    });
    return;
  }
  wait_for_clients(listener);
}

void Server::Impl::welcome(UniqueFd client, const Listener& listener) {
  if (listener.door == Door::unix_socket && !peer_is_us(client.get())) {
    log_warn("a connection from another user was refused");
    return;
  }
  // Whoever reaches the TCP port can hold its connections for a while, also without the key; that
  // must not keep the owner out, who comes over the Unix socket.
  const int tcp_limit = limits.max_connections - limits.max_connections / 8;
  if (static_cast<int>(context.sessions.size()) >= limits.max_connections ||
      (listener.door == Door::tcp && context.tcp_sessions >= tcp_limit)) {
    const std::string answer = render_response(
        context.error_answer(Error{ErrorCode::queue_full, "too many connections",
                                   "close some, or raise max_connections in ponder.toml"}),
        false, true);
    (void)::send(client.get(), answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    return;
  }
  if (listener.door == Door::tcp) {
    const int on = 1;
    ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  }
  StreamSocket socket(io);
  error_code ec;
  socket.assign(asio::generic::stream_protocol(listener.family, 0), client.get(), ec);
  if (ec) return;
  client.release();
  start_session(context, std::move(socket), listener.door, listener.port);
}

// glibc keeps what was freed in the arena of the thread that asked for it: six refused bodies of
// 15 MB left 150 to 300 MB behind. Half a second later the queue's thread has let go of them, too.
void Server::Impl::trim_soon() {
#if defined(__GLIBC__)
  if (std::exchange(trim_pending, true)) return;
  trim_timer.expires_after(kTrimAfter);
  trim_timer.async_wait([this](const error_code& ec) {
    trim_pending = false;
    if (!ec) asio::post(prep, [] { ::malloc_trim(0); });
  });
#endif
}

void Server::Impl::close_listeners() {
  // Where its path was taken away, another daemon's socket may be there now. Looked at while the
  // socket is open: until then no other file has its number.
  struct stat found {};
  if (!socket_path.empty() && ::lstat(socket_path.c_str(), &found) == 0 &&
      found.st_dev == socket_file.st_dev && found.st_ino == socket_file.st_ino)
    ::unlink(socket_path.c_str());
  socket_path.clear();
  for (const auto& listener : listeners) {
    error_code ignored;
    listener->descriptor.close(ignored);
    listener->pause.cancel();
  }
  listeners.clear();
}

void Server::Impl::stop() {
  on_io([this] {
    close_listeners();
    const auto open = context.sessions;  // aborting changes the set
    for (Session* session : open)
      if (context.sessions.count(session)) abort_session(*session);
  });
  prep.stop();
  prep.join();
  work.reset();
  io.stop();
  if (thread.joinable()) thread.join();
}

Server::Server(ServerLimits limits) : impl_(std::make_unique<Impl>(limits)) {}
Server::~Server() = default;

Result<void> Server::listen_unix(const std::filesystem::path& path) {
  return impl_->listen_unix(path);
}
Result<std::uint16_t> Server::listen_tcp(const std::string& address, std::uint16_t port) {
  return impl_->listen_tcp(address, port);
}

void Server::start(Admission admission, Handler handler, ErrorAnswer error_answer) {
  CHECK(!impl_->thread.joinable());
  impl_->context.admission = std::move(admission);
  impl_->context.handler = std::move(handler);
  impl_->context.error_answer = std::move(error_answer);
  for (const auto& listener : impl_->listeners)
    impl_->wait_for_clients(listener);
  impl_->thread = std::thread([this] {
    wake_this_thread_soon();
    impl_->io.run();
  });
}

void Server::post(std::function<void()> task) {
  asio::post(impl_->io, std::move(task));
}

void Server::stop_accepting() {
  impl_->on_io([this] {
    impl_->close_listeners();
    impl_->context.draining = true;
    const auto open = impl_->context.sessions;
    for (Session* session : open)
      if (impl_->context.sessions.count(session)) close_if_idle(*session);
  });
}

void Server::drain(milliseconds bound) {
  const auto end = std::chrono::steady_clock::now() + bound;
  while (std::chrono::steady_clock::now() < end) {
    int answering = 0;
    impl_->on_io([&] { answering = impl_->context.answering; });
    if (answering == 0) return;
    std::this_thread::sleep_for(milliseconds(5));
  }
}

void Server::stop() {
  impl_->stop();
}

int Server::connections() const {
  int open = 0;
  impl_->on_io([&] { open = static_cast<int>(impl_->context.sessions.size()); });
  return open;
}

}  // namespace ponder::daemon
