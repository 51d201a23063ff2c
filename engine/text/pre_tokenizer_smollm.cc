// SmolLM and SmolLM2: first every number character is a piece of its own, then GPT-2's rule cuts
// what lies between them:
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// Contractions are in lower case only. A number ends the text that GPT-2's rule sees, so that white
// space before it stays whole.
#include "engine/text/character_class.h"
#include "engine/text/pre_tokenizer.h"

namespace ponder::text {
namespace {

using Kind = CharacterClass;

bool is_space(Kind kind) {
  return kind == Kind::space || kind == Kind::line_break;
}
bool is_letter(Kind kind) {
  return kind == Kind::letter;
}
bool is_symbol(Kind kind) {
  return kind == Kind::other || kind == Kind::mark;
}

std::size_t contraction(std::string_view rest) {
  for (const std::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (rest.starts_with(ending)) return ending.size();
  return 0;
}

}  // namespace

std::size_t match_smollm(std::string_view text, std::size_t at) {
  const auto skip_while = [&](std::size_t i, bool (*accepts)(Kind)) {
    for (Character c = character_at(text, i); c.size && accepts(c.kind); c = character_at(text, i))
      i += c.size;
    return i;
  };
  const Character first = character_at(text, at);
  if (first.kind == Kind::number) return first.size;
  if (const std::size_t n = contraction(text.substr(at))) return n;

  // a word or symbols, with at most one leading blank
  const Character second =
      first.code_point == ' ' ? character_at(text, at + first.size) : Character{};
  for (const auto accepts : {is_letter, is_symbol})
    if (accepts(first.kind) || (second.size && accepts(second.kind)))
      return skip_while(at + first.size, accepts) - at;

  // white space: all of it, but for the last one before a word or a symbol
  std::size_t end = at, last = at;
  Character c = first;
  for (; c.size && is_space(c.kind); c = character_at(text, end)) {
    last = end;
    end += c.size;
  }
  const bool before_text = c.size && c.kind != Kind::number;
  return (before_text && last > at ? last : end) - at;
}

}  // namespace ponder::text
