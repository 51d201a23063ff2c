#include "mcp/protocol/line_reader.h"

#include <unistd.h>

#include <cerrno>

namespace ponder::mcp {
namespace {
constexpr std::size_t kBlockBytes = 64u << 10;

bool is_blank(const std::string& line) {
  return line.find_first_not_of(" \t\r") == std::string::npos;
}
}  // namespace

bool LineReader::fill() {
  if (at_end_) return false;
  const std::size_t old_size = buffer_.size();
  buffer_.resize(old_size + kBlockBytes);
  ssize_t n = 0;
  do {
    n = ::read(fd_, buffer_.data() + old_size, kBlockBytes);
  } while (n < 0 && errno == EINTR);
  buffer_.resize(old_size + (n > 0 ? static_cast<std::size_t>(n) : 0));
  if (n <= 0) at_end_ = true;
  return n > 0;
}

LineReader::Line LineReader::next() {
  for (;;) {
    const std::size_t newline = buffer_.find('\n', scanned_);
    if (newline == std::string::npos) {
      scanned_ = buffer_.size();
      if (skipping_) {
        buffer_.clear();
        scanned_ = 0;
      } else if (buffer_.size() > max_bytes_ + 1) {  // + 1: its \r may be the byte over
        skipping_ = true;
        buffer_ = {};  // gives the memory back
        scanned_ = 0;
        return {Kind::too_long, {}};
      }
      if (fill()) continue;
      if (buffer_.empty() || skipping_) return {Kind::end, {}};
    }
    const bool last = newline == std::string::npos;
    std::string text = buffer_.substr(0, last ? buffer_.size() : newline);
    if (last) {
      buffer_.clear();
    } else {
      buffer_.erase(0, newline + 1);
    }
    if (buffer_.empty()) buffer_ = {};
    scanned_ = 0;
    if (skipping_) {
      skipping_ = false;
      continue;
    }
    if (!text.empty() && text.back() == '\r') text.pop_back();
    if (text.size() > max_bytes_) return {Kind::too_long, {}};
    if (is_blank(text)) continue;
    return {Kind::text, std::move(text)};
  }
}

}  // namespace ponder::mcp
