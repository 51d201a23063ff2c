#pragma once
// What a character is to a pre-tokenizer. The Unicode data are those of the installed utf8proc:
// Unicode 15.0 with 2.8.0 (Debian 12), 15.1 with 2.9.0 (Debian 13); characters assigned later are
// `other`. Pure.
#include <cstddef>
#include <string_view>

namespace ponder::text {

enum class CharacterClass {
  letter,      ///< General_Category L*
  mark,        ///< M*
  number,      ///< N*
  line_break,  ///< CR or LF
  space,       ///< White_Space but CR and LF
  other,       ///< the rest, and bytes that are not UTF-8
};

struct Character {
  char32_t code_point = 0;
  CharacterClass kind = CharacterClass::other;
  std::size_t size = 0;  ///< bytes; 0 at the end of the text
};

CharacterClass classify(char32_t code_point);
/// The character at `text[at]`; size 0 when `at` is the end.
Character character_at(std::string_view text, std::size_t at);

}  // namespace ponder::text
