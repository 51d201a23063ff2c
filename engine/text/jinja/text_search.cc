#include "engine/text/jinja/text_search.h"

#include <string.h>

#include <algorithm>

#include "engine/base/utf8.h"

namespace ponder::text::jinja {

std::size_t find_text(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  // memmem is linear in the worst case; string_view::find is not.
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (!found) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

std::size_t leading_space(std::string_view text) {
  std::size_t i = 0;
  char32_t c = 0;
  while (i < text.size()) {
    const int n = decode_utf8(text, i, c);
    if (n == 0 || !is_python_space(c)) break;
    i += static_cast<std::size_t>(n);
  }
  return i;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  char32_t c = 0;
  while (end > 0) {
    std::size_t start = end - 1;
    while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xC0) == 0x80)
      --start;
    const int n = decode_utf8(text, start, c);
    if (n == 0 || start + static_cast<std::size_t>(n) != end || !is_python_space(c)) break;
    end = start;
  }
  return text.size() - end;
}

std::size_t clamped_offset(std::string_view text, long long index, long long length) {
  if (index < 0) index += length;
  index = std::clamp(index, 0LL, length);
  return byte_offset_of(text, index);
}

}  // namespace ponder::text::jinja
