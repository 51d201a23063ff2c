#include "engine/base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace ponder {

int decode_utf8(std::string_view text, std::size_t at, char32_t& code_point) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) {
    code_point = first;
    return 1;
  }
  int length = 0;
  char32_t value = 0;
  char32_t least = 0;
  if ((first & 0xE0) == 0xC0) length = 2, value = first & 0x1F, least = 0x80;
  else if ((first & 0xF0) == 0xE0) length = 3, value = first & 0x0F, least = 0x800;
  else if ((first & 0xF8) == 0xF0) length = 4, value = first & 0x07, least = 0x10000;
  else return 0;
  if (text.size() - at < static_cast<std::size_t>(length)) return 0;
  for (int i = 1; i < length; ++i) {
    const unsigned char next = byte(at + static_cast<std::size_t>(i));
    if ((next & 0xC0) != 0x80) return 0;
    value = (value << 6) | (next & 0x3F);
  }
  if (value < least || value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF)) return 0;
  code_point = value;
  return length;
}

void append_utf8(std::string& out, char32_t c) {
  const auto push = [&](char32_t b) { out += static_cast<char>(b); };
  if (c < 0x80) {
    push(c);
  } else if (c < 0x800) {
    push(0xC0 | (c >> 6)), push(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    push(0xE0 | (c >> 12)), push(0x80 | ((c >> 6) & 0x3F)), push(0x80 | (c & 0x3F));
  } else {
    push(0xF0 | (c >> 18)), push(0x80 | ((c >> 12) & 0x3F)), push(0x80 | ((c >> 6) & 0x3F));
    push(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  char32_t c = 0;
  for (std::size_t i = 0; i < text.size();) {
    // Eight bytes of ASCII at once: megabytes of it are the usual case.
    std::uint64_t eight = 0;
    if (text.size() - i >= sizeof eight) {
      std::memcpy(&eight, text.data() + i, sizeof eight);
      if ((eight & 0x8080808080808080u) == 0) {
        i += sizeof eight;
        continue;
      }
    }
    const int n = decode_utf8(text, i, c);
    if (n == 0) return false;
    i += static_cast<std::size_t>(n);
  }
  return true;
}

std::int64_t count_code_points(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::size_t byte_offset_of(std::string_view text, std::int64_t n) {
  std::size_t i = 0;
  for (; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) continue;
    if (n-- == 0) return i;
  }
  return i;
}

std::size_t complete_prefix(std::string_view text) {
  const std::size_t look = std::min<std::size_t>(text.size(), 3);
  for (std::size_t back = 1; back <= look; ++back) {
    const auto c = static_cast<unsigned char>(text[text.size() - back]);
    if ((c & 0xC0) == 0x80) continue;
    std::size_t need = 1;
    if ((c & 0xE0) == 0xC0) need = 2;
    else if ((c & 0xF0) == 0xE0) need = 3;
    else if ((c & 0xF8) == 0xF0) need = 4;
    return need > back ? text.size() - back : text.size();
  }
  return text.size();
}

std::string replace_invalid(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  char32_t c = 0;
  for (std::size_t i = 0; i < text.size();) {
    const int n = decode_utf8(text, i, c);
    if (n == 0) {
      out += "\xEF\xBF\xBD";
      ++i;
    } else {
      out.append(text.substr(i, static_cast<std::size_t>(n)));
      i += static_cast<std::size_t>(n);
    }
  }
  return out;
}

}  // namespace ponder
