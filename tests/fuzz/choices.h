#pragma once
// The bytes of an input as a series of choices: what they run out of is 0, so that a short input is
// a simple case.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ponder::fuzz {

class Choices {
 public:
  explicit Choices(std::string_view bytes) : left_(bytes) {}

  bool empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto now = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return now;
  }
  /// From 0 to n - 1; n at most 256.
  std::size_t below(std::size_t n) { return byte() % n; }
  bool yes() { return (byte() & 1) != 0; }
  /// The next `n` bytes, or what is left.
  std::string_view text(std::size_t n) {
    const std::string_view now = left_.substr(0, n);
    left_.remove_prefix(now.size());
    return now;
  }

 private:
  std::string_view left_;
};

}  // namespace ponder::fuzz
