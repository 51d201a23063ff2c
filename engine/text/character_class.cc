#include "engine/text/character_class.h"

#include <utf8proc.h>

#include <array>

#include "engine/base/utf8.h"

namespace ponder::text {
namespace {

/// The White_Space property. It has been stable since Unicode 6.3; U+FEFF and U+200B are not in it.
bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

CharacterClass compute(char32_t c) {
  if (c == '\r' || c == '\n') return CharacterClass::line_break;
  if (is_white_space(c)) return CharacterClass::space;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
      return CharacterClass::letter;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
      return CharacterClass::mark;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return CharacterClass::number;
    default:
      return CharacterClass::other;
  }
}

}  // namespace

CharacterClass classify(char32_t code_point) {
  static const auto ascii = [] {
    std::array<CharacterClass, 128> table{};
    for (char32_t c = 0; c < 128; ++c)
      table[c] = compute(c);
    return table;
  }();
  return code_point < 128 ? ascii[code_point] : compute(code_point);
}

Character character_at(std::string_view text, std::size_t at) {
  Character result;
  if (at >= text.size()) return result;
  const int n = decode_utf8(text, at, result.code_point);
  if (n == 0) {
    result.code_point = 0xFFFD;
    result.size = 1;
    return result;
  }
  result.size = static_cast<std::size_t>(n);
  result.kind = classify(result.code_point);
  return result;
}

}  // namespace ponder::text
