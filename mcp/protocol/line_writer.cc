#include "mcp/protocol/line_writer.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

namespace ponder::mcp {
namespace {
#ifdef MSG_NOSIGNAL
constexpr int kSendFlags = MSG_DONTWAIT | MSG_NOSIGNAL;
#else
constexpr int kSendFlags = MSG_DONTWAIT;  // SIGPIPE is ignored by the program
#endif
constexpr int kAskPeerEveryMs = 20;
constexpr int kGoneAnswersToGiveUp = 3;  // a reader may drain the pipe a little after it hung up
}  // namespace

std::string to_line(const json::value& message) {
  std::string line = to_json(message);
  for (const auto& [bytes, escape] :
       {std::pair<const char*, const char*>{"\xE2\x80\xA8", "\\u2028"},
        std::pair<const char*, const char*>{"\xE2\x80\xA9", "\\u2029"}})
    for (std::size_t at = line.find(bytes); at != std::string::npos; at = line.find(bytes, at + 6))
      line.replace(at, 3, escape);
  return line;
}

LineWriter::LineWriter(int fd, std::function<bool()> peer_gone, std::function<void()> on_broken)
    : fd_(fd), peer_gone_(std::move(peer_gone)), on_broken_(std::move(on_broken)) {
  struct stat s {};
  is_socket_ = ::fstat(fd, &s) == 0 && S_ISSOCK(s.st_mode);
}

void LineWriter::send(const json::value& message) {
  const std::string line = to_line(message) + '\n';
  const std::lock_guard lock(mutex_);
  if (broken_) return;
  if (!write_all(line.data(), line.size())) {
    broken_ = true;
    on_broken_();
  }
}

// The descriptor may be shared with other processes, so O_NONBLOCK is not ours to set. A socket
// takes MSG_DONTWAIT; a pipe that polls writable takes PIPE_BUF bytes without blocking.
bool LineWriter::write_all(const char* data, std::size_t size) {
  while (size > 0) {
    ssize_t n = 0;
    if (is_socket_) {
      n = ::send(fd_, data, size, kSendFlags);
    } else {
      if (!wait_writable()) return false;
      n = ::write(fd_, data, std::min<std::size_t>(size, PIPE_BUF));
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      if (!wait_writable()) return false;
      continue;
    }
    if (n < 0) return false;
    data += n;
    size -= static_cast<std::size_t>(n);
  }
  return true;
}

bool LineWriter::wait_writable() {
  for (int gone = 0; gone < kGoneAnswersToGiveUp;) {
    pollfd p{fd_, POLLOUT, 0};
    const int n = ::poll(&p, 1, kAskPeerEveryMs);
    if (n < 0 && errno != EINTR) return false;
    if (n > 0) return (p.revents & (POLLERR | POLLNVAL)) == 0;
    gone = peer_gone_() ? gone + 1 : 0;
  }
  return false;
}

}  // namespace ponder::mcp
