#include "tests/unit/client/scripted_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "engine/base/check.h"

namespace ponder::client_test {
namespace {

UniqueFd listen_on_path(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(fd);
  ::unlink(path.c_str());
  // Through the directory, so that long paths can be bound as well.
  const std::filesystem::path whole(path);
  const UniqueFd dir(::open(whole.parent_path().c_str(), O_PATH | O_CLOEXEC));
  const std::string name = fmt::format("/proc/self/fd/{}/{}", dir.get(), whole.filename().string());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  CHECK(name.size() < sizeof address.sun_path);
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  CHECK_MSG(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, path);
  CHECK(::listen(fd.get(), 64) == 0);
  return fd;
}

UniqueFd listen_on_tcp(int& port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  CHECK(::listen(fd.get(), 64) == 0);
  socklen_t size = sizeof address;
  CHECK(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port = ntohs(address.sin_port);
  return fd;
}

/// Reads one request; false if the client went away before it was whole.
bool read_request(int fd, SeenRequest& request) {
  std::string text;
  std::size_t head_end = std::string::npos;
  std::size_t length = 0;
  char buffer[1 << 16];
  while (head_end == std::string::npos || text.size() < head_end + 4 + length) {
    const ssize_t n = ::recv(fd, buffer, sizeof buffer, 0);
    if (n <= 0) return false;
    text.append(buffer, static_cast<std::size_t>(n));
    if (head_end != std::string::npos) continue;
    head_end = text.find("\r\n\r\n");
    if (head_end == std::string::npos) continue;
    if (const std::size_t at = text.find("Content-Length: "); at < head_end)
      length = static_cast<std::size_t>(std::atoll(text.c_str() + at + 16));
  }
  request.head = text.substr(0, head_end + 2);
  request.body = text.substr(head_end + 4);
  const std::size_t space = request.head.find(' ');
  request.method = request.head.substr(0, space);
  request.target = request.head.substr(space + 1, request.head.find(' ', space + 1) - space - 1);
  return true;
}
}  // namespace

json::object SeenRequest::object() const {
  auto parsed = parse_json_object(body);
  CHECK_MSG(parsed, body);
  return *parsed;
}

std::string http_answer(int status, std::string_view body, std::string_view more_headers) {
  return fmt::format(
      "HTTP/1.1 {} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{}\r\n{}", status,
      body.size(), more_headers, body);
}

bool Peer::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

bool Peer::send_split(std::string_view bytes, std::size_t size) {
  for (std::size_t at = 0; at < bytes.size(); at += size) {
    if (!send(bytes.substr(at, size))) return false;
    std::this_thread::yield();
  }
  return true;
}

void Peer::answer(int status, const json::value& body, std::string_view more_headers) {
  send(http_answer(status, body.is_null() ? "" : to_json(body), more_headers));
}

void Peer::begin_events() {
  send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
}

bool Peer::event(std::string_view id, std::string_view name, const json::value& data) {
  const std::string text = fmt::format("id: {}\nevent: {}\ndata: {}\n\n", id, name, to_json(data));
  return send(fmt::format("{:x}\r\n{}\r\n", text.size(), text));
}

void Peer::end_events() {
  send("0\r\n\r\n");
}

void Peer::wait_until_gone() {
  char byte;
  while (::recv(fd_, &byte, 1, 0) > 0) {
  }
}

ScriptedServer::ScriptedServer(const std::string& path, Script script)
    : listener_(listen_on_path(path)), script_(std::move(script)) {
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::ScriptedServer(Script script)
    : listener_(listen_on_tcp(port_)), script_(std::move(script)) {
  acceptor_ = std::thread([this] { accept_all(); });
}

ScriptedServer::~ScriptedServer() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    for (const UniqueFd& fd : open_)
      ::shutdown(fd.get(), SHUT_RDWR);
  }
  ::shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads)
    thread.join();
}

void ScriptedServer::accept_all() {
  for (;;) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::lock_guard lock(mutex_);
    if (!fd || ending_) return;
    const int raw = fd.get();
    open_.push_back(std::move(fd));
    threads_.emplace_back([this, raw] { serve(raw); });
  }
}

void ScriptedServer::serve(int fd) {
  SeenRequest request;
  if (read_request(fd, request)) {
    {
      const std::lock_guard lock(mutex_);
      seen_.push_back(request);
    }
    changed_.notify_all();
    Peer peer(fd);
    script_(request, peer);
  }
  const std::lock_guard lock(mutex_);
  open_.remove_if([fd](const UniqueFd& each) { return each.get() == fd; });
}

std::vector<SeenRequest> ScriptedServer::seen() const {
  const std::lock_guard lock(mutex_);
  return seen_;
}

int ScriptedServer::count(const std::string& what) const {
  return count_if([&](const SeenRequest& r) { return r.what() == what; });
}

bool ScriptedServer::wait_for(const std::string& what, int times) const {
  return wait_until([&](const SeenRequest& r) { return r.what() == what; }, times);
}

int ScriptedServer::count_of_target(const std::string& target) const {
  return count_if([&](const SeenRequest& r) { return r.target == target; });
}

bool ScriptedServer::wait_for_target(const std::string& target, int times) const {
  return wait_until([&](const SeenRequest& r) { return r.target == target; }, times);
}

int ScriptedServer::count_if(const Matches& matches) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::count_if(seen_.begin(), seen_.end(), matches));
}

bool ScriptedServer::wait_until(const Matches& matches, int times) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] {
    return std::count_if(seen_.begin(), seen_.end(), matches) >= times;
  });
}

}  // namespace ponder::client_test
