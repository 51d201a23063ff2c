#include "engine/text/jinja/string_literal.h"

#include "engine/base/utf8.h"

namespace ponder::text::jinja {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

tl::expected<std::string, std::string> unescape(std::string_view literal) {
  std::string out;
  out.reserve(literal.size());
  for (std::size_t i = 0; i < literal.size(); ++i) {
    if (literal[i] != '\\' || i + 1 == literal.size()) {
      out += literal[i];
      continue;
    }
    const char c = literal[++i];
    switch (c) {
      case '\n':
        break;  // a line goes on
      case '\\':
        out += '\\';
        break;
      case '\'':
        out += '\'';
        break;
      case '"':
        out += '"';
        break;
      case 'a':
        out += '\a';
        break;
      case 'b':
        out += '\b';
        break;
      case 'f':
        out += '\f';
        break;
      case 'n':
        out += '\n';
        break;
      case 'r':
        out += '\r';
        break;
      case 't':
        out += '\t';
        break;
      case 'v':
        out += '\v';
        break;
      case 'x':
      case 'u':
      case 'U': {
        const std::size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t value = 0;
        for (std::size_t k = 0; k < count; ++k) {
          const int digit = i + 1 < literal.size() ? hex_digit(literal[i + 1]) : -1;
          if (digit < 0 || value > 0x10FFFF)
            return tl::unexpected<std::string>("a \\x or \\u escape is not whole");
          value = value * 16 + static_cast<char32_t>(digit);
          ++i;
        }
        if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
          return tl::unexpected<std::string>("an escape names no character");
        append_utf8(out, value);
        break;
      }
      default:
        if (c >= '0' && c <= '7') {
          char32_t value = static_cast<char32_t>(c - '0');
          for (int k = 0;
               k < 2 && i + 1 < literal.size() && literal[i + 1] >= '0' && literal[i + 1] <= '7';
               ++k)
            value = value * 8 + static_cast<char32_t>(literal[++i] - '0');
          append_utf8(out, value);
        } else if (c == 'N') {
          return tl::unexpected<std::string>("\\N{...} escapes are not known");
        } else {
          out += '\\';
          out += c;
        }
    }
  }
  return out;
}

}  // namespace ponder::text::jinja
