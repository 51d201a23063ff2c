#pragma once
// Reads a file forwards through a small buffer. Each read first proves that its bytes are inside
// the file, so a lying length costs nothing. Not thread-safe; does not own the descriptor.
#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "engine/base/error.h"

namespace ponder::artifact {

/// pread of exactly out.size() bytes at `offset`; an error when the file ended or could not be
/// read.
Result<void> read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out);

class Cursor {
 public:
  /// Reads within [begin, end) of the file.
  Cursor(int fd, std::uint64_t begin, std::uint64_t end) : fd_(fd), at_(begin), end_(end) {}

  std::uint64_t offset() const { return at_; }
  std::uint64_t left() const { return end_ - at_; }

  /// A little-endian number. `what` names it in the error.
  template <class T>
  Result<T> number(std::string_view what) {
    T value{};
    TRY_VOID(bytes(std::as_writable_bytes(std::span(&value, 1)), what));
    return value;
  }
  /// u64 length and bytes, at most `most`.
  Result<std::string> string(std::uint64_t most, std::string_view what);
  Result<void> skip_string(std::uint64_t most, std::string_view what);
  Result<void> skip(std::uint64_t count, std::string_view what);

 private:
  Result<void> bytes(std::span<std::byte> out, std::string_view what);
  Result<std::uint64_t> string_length(std::uint64_t most, std::string_view what);

  int fd_;
  std::uint64_t at_;
  std::uint64_t end_;
  std::array<std::byte, 16384> buffer_;
  std::uint64_t buffer_at_ = 0;    ///< file offset of buffer_[0]
  std::uint64_t buffer_size_ = 0;  ///< bytes of it that are filled
};

}  // namespace ponder::artifact
