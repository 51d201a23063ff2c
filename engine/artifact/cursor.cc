#include "engine/artifact/cursor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

namespace ponder::artifact {

static_assert(std::endian::native == std::endian::little, "GGUF numbers are copied as they are");

Result<void> read_exactly(int fd, std::uint64_t offset, std::span<std::byte> out) {
  std::size_t done = 0;
  while (done < out.size()) {
    // Linux moves at most 2 GiB a call
    const std::size_t want = std::min<std::size_t>(out.size() - done, 1u << 30);
    const ssize_t got = ::pread(fd, out.data() + done, want, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      return fail(ErrorCode::engine_error, fmt::format("reading failed: {}", std::strerror(errno)));
    if (got == 0)
      return fail(ErrorCode::engine_error, "the file became shorter while it was read",
                  "Do not change a model file while it is in use.");
    done += static_cast<std::size_t>(got);
  }
  return {};
}

Result<void> Cursor::bytes(std::span<std::byte> out, std::string_view what) {
  if (out.size() > left())
    return fail(ErrorCode::engine_error, fmt::format("it ends inside {}", what));
  std::size_t done = 0;
  while (done < out.size()) {
    if (at_ < buffer_at_ || at_ >= buffer_at_ + buffer_size_) {
      const std::uint64_t fill = std::min<std::uint64_t>(buffer_.size(), end_ - at_);
      TRY_VOID(read_exactly(fd_, at_, std::span(buffer_.data(), fill)));
      buffer_at_ = at_;
      buffer_size_ = fill;
    }
    const std::uint64_t from = at_ - buffer_at_;
    const std::size_t count = std::min<std::size_t>(buffer_size_ - from, out.size() - done);
    std::memcpy(out.data() + done, buffer_.data() + from, count);
    done += count;
    at_ += count;
  }
  return {};
}

Result<std::uint64_t> Cursor::string_length(std::uint64_t most, std::string_view what) {
  TRY(const std::uint64_t length, number<std::uint64_t>(what));
  if (length > left())
    return fail(ErrorCode::engine_error,
                fmt::format("{} claims {} bytes, but only {} are left", what, length, left()));
  if (length > most)
    return fail(ErrorCode::engine_error,
                fmt::format("{} is {} bytes long; the limit is {}", what, length, most));
  return length;
}

Result<std::string> Cursor::string(std::uint64_t most, std::string_view what) {
  TRY(const std::uint64_t length, string_length(most, what));
  std::string text(length, '\0');
  TRY_VOID(bytes(std::as_writable_bytes(std::span(text)), what));
  return text;
}

Result<void> Cursor::skip_string(std::uint64_t most, std::string_view what) {
  TRY(const std::uint64_t length, string_length(most, what));
  at_ += length;
  return {};
}

Result<void> Cursor::skip(std::uint64_t count, std::string_view what) {
  if (count > left()) return fail(ErrorCode::engine_error, fmt::format("it ends inside {}", what));
  at_ += count;
  return {};
}

}  // namespace ponder::artifact
