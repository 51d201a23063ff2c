#pragma once
// The framing of MCP on stdio: one JSON message a line, read from a file descriptor in blocks.
// A line may end in \r\n; blank lines are skipped; the last line may lack its newline. A line over
// the limit is reported once and skipped to its newline, so one bad message costs only itself.
// Not thread-safe: one reader, one thread. Blocks in read(2).
#include <cstddef>
#include <string>

namespace ponder::mcp {

class LineReader {
 public:
  enum class Kind {
    text,      ///< a whole line, without its end
    too_long,  ///< a line over the limit; its bytes are gone
    end,       ///< end of file, or the descriptor cannot be read
  };
  struct Line {
    Kind kind = Kind::end;
    std::string text;
  };

  /// `fd` stays the caller's.
  LineReader(int fd, std::size_t max_bytes) : fd_(fd), max_bytes_(max_bytes) {}

  Line next();

 private:
  /// Appends what can be read; false at the end.
  bool fill();

  int fd_;
  std::size_t max_bytes_;
  std::string buffer_;
  std::size_t scanned_ = 0;  ///< bytes of buffer_ known to hold no newline
  bool skipping_ = false;    ///< inside a line that was over the limit
  bool at_end_ = false;
};

}  // namespace ponder::mcp
