#pragma once
// MessageSink on a file descriptor: one line a message, one lock, each line flushed.
#include <functional>
#include <mutex>

#include "mcp/protocol/message_sink.h"

namespace ponder::mcp {

class LineWriter final : public MessageSink {
 public:
  /// Writes to `fd` (stays the caller's). While the reader of `fd` takes nothing, `peer_gone` is
  /// asked every 20 ms; once it said so three times running, or the pipe is broken, `on_broken` is
  /// called (it must not call back) and everything after is dropped.
  LineWriter(int fd, std::function<bool()> peer_gone, std::function<void()> on_broken);

  void send(const json::value& message) override;

 private:
  bool write_all(const char* data, std::size_t size);
  bool wait_writable();

  int fd_;
  bool is_socket_;
  std::function<bool()> peer_gone_;
  std::function<void()> on_broken_;
  std::mutex mutex_;
  bool broken_ = false;  ///< guarded by mutex_
};

/// `message` on one line, without the newline. U+2028 and U+2029 are escaped: legal in JSON, but
/// some line readers (Node's readline among them) end a line at them.
std::string to_line(const json::value& message);

}  // namespace ponder::mcp
