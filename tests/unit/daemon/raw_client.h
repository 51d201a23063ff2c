#pragma once
// A client that sends exactly the bytes it is given. Blocking, with a bound on every read.
#include <arpa/inet.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cctype>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {

struct RawResponse {
  int status = 0;                              ///< 0: the connection ended without one
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  json::value parsed() const { return body.empty() ? json::value() : *parse_json(body); }
  std::string code() const {
    const json::value value = parsed();
    return std::string(value.at("error").at("code").as_string());
  }
};

class RawClient {
 public:
  static RawClient unix_socket(const std::string& path) {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return RawClient(std::move(fd));
  }
  static RawClient tcp(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fd.reset();
    return RawClient(std::move(fd));
  }

  bool connected() const { return static_cast<bool>(fd_); }
  int fd() const { return fd_.get(); }
  void close() { fd_.reset(); }

  /// False once the other side has gone.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  /// Waits until the other side has read all that was sent (Unix sockets); false after ten seconds.
  bool wait_until_taken() {
    for (int i = 0; i < 10'000; ++i) {
      int unread = 1;
      if (::ioctl(fd_.get(), SIOCOUTQ, &unread) == 0 && unread == 0) return true;
      ::usleep(1'000);
    }
    return false;
  }

  /// Whatever comes until `text` has come; false at the end of the stream or after ten seconds.
  bool read_until(std::string_view text) {
    while (in_.find(text) == in_.npos)
      if (!read_some()) return false;
    return true;
  }
  /// Everything until the other side closes.
  std::string read_to_end() {
    while (read_some()) {
    }
    return std::exchange(in_, {});
  }
  /// True if the other side closes (with nothing more to say) within ten seconds.
  bool is_closed_by_peer() { return in_.empty() && !read_some() && ended_; }
  std::string take() { return std::exchange(in_, {}); }

  /// One whole response; chunked bodies are joined. `of_head`: it has no body.
  RawResponse response(bool of_head = false) {
    RawResponse out;
    if (!read_until("\r\n\r\n")) return out;
    const std::size_t end = in_.find("\r\n\r\n") + 4;
    parse_head(std::string_view(in_).substr(0, end), out);
    in_.erase(0, end);
    if (out.status == 100) return response(of_head);
    if (of_head) return out;
    if (const auto length = out.headers.find("content-length"); length != out.headers.end()) {
      const std::size_t size = std::stoul(length->second);
      while (in_.size() < size)
        if (!read_some()) return {};
      out.body = in_.substr(0, size);
      in_.erase(0, size);
    } else if (out.headers.count("transfer-encoding")) {
      while (true) {
        if (!read_until("\r\n")) return {};
        const std::size_t size = std::stoul(in_, nullptr, 16);
        in_.erase(0, in_.find("\r\n") + 2);
        while (in_.size() < size + 2)
          if (!read_some()) return {};
        out.body += in_.substr(0, size);
        in_.erase(0, size + 2);
        if (size == 0) break;
      }
    }
    return out;
  }

  RawResponse request(std::string_view bytes, bool of_head = false) {
    send(bytes);
    return response(of_head);
  }

 private:
  explicit RawClient(UniqueFd fd) : fd_(std::move(fd)) {}

  bool read_some() {
    pollfd wait{fd_.get(), POLLIN, 0};
    if (!fd_ || ::poll(&wait, 1, 10'000) <= 0) return false;
    char buffer[65536];
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n <= 0) {
      ended_ = true;
      return false;
    }
    in_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }

  static void parse_head(std::string_view head, RawResponse& out) {
    out.status = std::stoi(std::string(head.substr(9, 3)));
    for (std::size_t at = head.find("\r\n") + 2; at < head.size();) {
      const std::size_t end = head.find("\r\n", at);
      const std::string_view line = head.substr(at, end - at);
      at = end + 2;
      const std::size_t colon = line.find(": ");
      if (colon == line.npos) continue;
      std::string name(line.substr(0, colon));
      for (char& c : name)
        c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      out.headers[name] = line.substr(colon + 2);
    }
  }

  UniqueFd fd_;
  std::string in_;
  bool ended_ = false;
};

}  // namespace ponder::daemon
