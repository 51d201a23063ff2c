#pragma once
// Template source to tokens. White space around tags is handled here, as Jinja2 does with
// trim_blocks and lstrip_blocks on: a block's or comment's line break goes with it, and so do the
// blanks before it on its line; '-' strips all white space on its side, '+' keeps it.
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/jinja/meter.h"
#include "engine/text/jinja/value.h"

namespace ponder::text::jinja {

enum class TokenKind {
  data,            // text outside of tags
  variable_begin,  // {{
  variable_end,
  block_begin,  // {%
  block_end,
  name,
  string,
  integer,
  floating,
  symbol,  // an operator or bracket
  end,
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text = {};  ///< data, name, unescaped string or operator
  Int integer = 0;
  double floating = 0;
  int line = 1;

  bool is_symbol(std::string_view s) const { return kind == TokenKind::symbol && text == s; }
  bool is_name(std::string_view s) const { return kind == TokenKind::name && text == s; }
};

/// All tokens of `source`, which must be valid UTF-8, the last one of kind `end`.
Outcome<std::vector<Token>> tokenize(std::string_view source);

}  // namespace ponder::text::jinja
