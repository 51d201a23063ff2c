#include "engine/text/pre_tokenizer_qwen.h"

#include "engine/text/character_class.h"

namespace ponder::text {
namespace {

using Kind = CharacterClass;

bool is_space(Kind kind) {
  return kind == Kind::space || kind == Kind::line_break;
}

/// Case-folded ASCII letter, or 0. U+017F (long s) folds to s, as in a Unicode-aware engine.
char fold(char32_t c) {
  if (c >= 'a' && c <= 'z') return static_cast<char>(c);
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == 0x017F ? 's' : '\0';
}

/// The length of an apostrophe's contraction at `at`, or 0.
std::size_t contraction(std::string_view text, std::size_t at) {
  if (text[at] != '\'') return 0;
  const Character first = character_at(text, at + 1);
  const char a = first.size ? fold(first.code_point) : '\0';
  const std::size_t one = 1 + first.size;
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return one;
  if (a != 'r' && a != 'v' && a != 'l') return 0;
  const Character second = character_at(text, at + one);
  const char b = second.size ? fold(second.code_point) : '\0';
  return b == (a == 'l' ? 'l' : 'e') ? one + second.size : 0;
}

}  // namespace

std::size_t match_qwen(std::string_view text, std::size_t at, const QwenRule& rule) {
  const auto is_word = [&](Kind kind) {
    return kind == Kind::letter || (rule.marks_are_words && kind == Kind::mark);
  };
  const auto is_symbol = [&](Kind kind) {
    return kind == Kind::other || (!rule.marks_are_words && kind == Kind::mark);
  };
  const auto skip_while = [&](std::size_t i, auto&& accepts) {
    for (Character c = character_at(text, i); c.size && accepts(c.kind); c = character_at(text, i))
      i += c.size;
    return i;
  };

  if (const std::size_t n = contraction(text, at)) return n;

  const Character first = character_at(text, at);
  const Character second = character_at(text, at + first.size);
  // A word, with at most one leading character that is no line break, letter or number. A mark may
  // be that leading character or the word's first one; the piece is the same.
  if (is_word(first.kind)) return skip_while(at + first.size, is_word) - at;
  if (first.kind != Kind::line_break && first.kind != Kind::number && second.size &&
      is_word(second.kind))
    return skip_while(at + first.size, is_word) - at;

  if (first.kind == Kind::number) {
    std::size_t end = at + first.size;
    for (int i = 1; i < rule.numbers; ++i) {
      const Character next = character_at(text, end);
      if (next.size == 0 || next.kind != Kind::number) break;
      end += next.size;
    }
    return end - at;
  }

  // Symbols, with at most one leading blank, and the line breaks after them.
  const bool blank_first = first.code_point == ' ' && second.size && is_symbol(second.kind);
  if (is_symbol(first.kind) || blank_first) {
    const std::size_t end = skip_while(at + first.size, is_symbol);
    return skip_while(end, [](Kind kind) { return kind == Kind::line_break; }) - at;
  }

  // White space: up to its last line break; else all of it, but for the last one before a word.
  std::size_t end = at, after_break = 0, last = at;
  for (Character c = first; c.size && is_space(c.kind); c = character_at(text, end)) {
    last = end;
    end += c.size;
    if (c.kind == Kind::line_break) after_break = end;
  }
  if (after_break) return after_break - at;
  if (end < text.size() && last > at) return last - at;
  return end - at;
}

}  // namespace ponder::text
