#include "engine/text/jinja/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "engine/base/utf8.h"
#include "engine/text/jinja/string_literal.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

/// Line breaks as \n; one at the very end is not part of the template.
std::string normalise(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

constexpr std::string_view kSymbols[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  Outcome<std::vector<Token>> run() {
    while (at_ < text_.size())
      TRY_VOID(lex_data());
    add(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  bool looking_at(std::string_view s) const { return text_.substr(at_, s.size()) == s; }
  Token& add(TokenKind kind, std::string text = {}) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
    return tokens_.back();
  }
  void advance_to(std::size_t end) {
    line_ += static_cast<int>(std::count(text_.begin() + static_cast<std::ptrdiff_t>(at_),
                                         text_.begin() + static_cast<std::ptrdiff_t>(end), '\n'));
    at_ = end;
  }
  void skip_space() { advance_to(at_ + leading_space(text_.substr(at_))); }

  /// The next {{, {% or {# at or after `from`, or npos.
  std::size_t next_tag(std::size_t from) const {
    for (std::size_t i = text_.find('{', from); i != std::string_view::npos;
         i = text_.find('{', i + 1)) {
      const char c = i + 1 < text_.size() ? text_[i + 1] : '\0';
      if (c == '{' || c == '%' || c == '#') return i;
    }
    return std::string_view::npos;
  }

  /// `data` without what a tag with this sign strips before itself.
  std::string_view strip_before(std::string_view data, char sign, bool variable) const {
    if (sign == '-') return data.substr(0, data.size() - trailing_space(data));
    if (sign == '+' || variable) return data;
    const std::size_t line_start = data.rfind('\n') + 1;  // npos + 1 is 0
    if (line_start == 0 && !line_starting_) return data;
    if (leading_space(data.substr(line_start)) != data.size() - line_start) return data;
    return data.substr(0, line_start);
  }

  /// Data up to the next tag, and the tag.
  Outcome<void> lex_data() {
    const std::size_t tag = next_tag(at_);
    if (tag == std::string_view::npos) {
      add(TokenKind::data, std::string(text_.substr(at_)));
      at_ = text_.size();
      return {};
    }
    const char kind = text_[tag + 1];
    char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    const std::string_view data = strip_before(text_.substr(at_, tag - at_), sign, kind == '{');
    if (!data.empty()) add(TokenKind::data, std::string(data));
    advance_to(tag + (sign ? 3 : 2));
    if (kind == '#') return lex_comment();
    if (kind == '%' && is_raw_begin()) return lex_raw();
    add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin);
    return lex_code(kind == '{' ? "}}" : "%}");
  }

  /// After a tag's end at `end`: its sign strips white space, or the line break goes with it.
  void finish_tag(std::size_t end, char sign, bool trims_line) {
    advance_to(end);
    const std::size_t before = at_;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+' && trims_line && peek() == '\n') {
      advance_to(at_ + 1);
    }
    line_starting_ = at_ > before && text_[at_ - 1] == '\n';
  }

  Outcome<void> lex_comment() {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) return fault("a comment is not closed", line_);
    const char sign = end > at_ ? text_[end - 1] : '\0';
    finish_tag(end + 2, sign, true);
    return {};
  }

  /// Whether the block that has just begun is {% raw %}.
  bool is_raw_begin() const { return word_tag_end("raw", at_, nullptr) != std::string_view::npos; }

  /// The offset after `WORD [-+]%}` at `from`, or npos; its sign goes to `sign`.
  std::size_t word_tag_end(std::string_view word, std::size_t from, char* sign) const {
    std::size_t i = from + leading_space(text_.substr(from));
    if (text_.substr(i, word.size()) != word) return std::string_view::npos;
    i += word.size();
    i += leading_space(text_.substr(i));
    char found = '\0';
    if (i < text_.size() && (text_[i] == '-' || text_[i] == '+')) found = text_[i++];
    if (text_.substr(i, 2) != "%}") return std::string_view::npos;
    if (sign) *sign = found;
    return i + 2;
  }

  Outcome<void> lex_raw() {
    const int start_line = line_;
    char sign = '\0';
    const std::size_t after = word_tag_end("raw", at_, &sign);
    finish_tag(after, sign, false);
    const std::size_t begin = at_;
    for (std::size_t tag = text_.find("{%", at_); tag != std::string_view::npos;
         tag = text_.find("{%", tag + 2)) {
      std::size_t inside = tag + 2;
      char open = inside < text_.size() ? text_[inside] : '\0';
      if (open == '-' || open == '+') {
        ++inside;
      } else {
        open = '\0';
      }
      char close = '\0';
      const std::size_t end = word_tag_end("endraw", inside, &close);
      if (end == std::string_view::npos) continue;
      const std::string_view data = strip_before(text_.substr(begin, tag - begin), open, false);
      if (!data.empty()) add(TokenKind::data, std::string(data));
      finish_tag(end, close, true);
      return {};
    }
    return fault("{% raw %} is not closed", start_line);
  }

  /// Tokens of one tag, up to and with its end.
  Outcome<void> lex_code(std::string_view tag_end) {
    const bool block = tag_end == "%}";
    const int start_line = line_;
    std::string open;  // brackets that are not closed yet
    while (true) {
      skip_space();
      if (at_ >= text_.size())
        return fault(fmt::format("the tag is not closed with {}", tag_end), start_line);
      if (open.empty()) {
        const char c = peek();
        const bool signed_end =
            (c == '-' || (block && c == '+')) && text_.substr(at_ + 1, 2) == tag_end;
        if (signed_end || looking_at(tag_end)) {
          add(block ? TokenKind::block_end : TokenKind::variable_end);
          finish_tag(at_ + (signed_end ? 3 : 2), signed_end ? c : '\0', block);
          return {};
        }
      }
      const char c = peek();
      if (is_digit(c)) {
        TRY_VOID(lex_number());
      } else if (is_name_start(c)) {
        lex_name();
      } else if (c == '\'' || c == '"') {
        TRY_VOID(lex_string());
      } else {
        TRY_VOID(lex_symbol(open));
      }
    }
  }

  void lex_name() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end])))
      ++end;
    add(TokenKind::name, std::string(text_.substr(at_, end - at_)));
    at_ = end;
  }

  Outcome<void> lex_string() {
    std::size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != text_[at_])
      end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) return fault("a string is not closed", line_);
    auto value = unescape(text_.substr(at_ + 1, end - at_ - 1));
    if (!value) return fault(value.error(), line_);
    add(TokenKind::string, std::move(*value));
    advance_to(end + 1);
    return {};
  }

  Outcome<void> lex_symbol(std::string& open) {
    for (const std::string_view symbol : kSymbols) {
      if (!looking_at(symbol)) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : static_cast<char>(c + 2);
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c)
          return fault(fmt::format("unexpected '{}'", c), line_);
        open.pop_back();
      }
      add(TokenKind::symbol, std::string(symbol));
      at_ += symbol.size();
      return {};
    }
    return fault(fmt::format("unexpected character '{}'", replace_invalid(text_.substr(at_, 1))),
                 line_);
  }

  /// Digits with single underscores between them, from `i`; the offset after them.
  std::size_t digits_end(std::size_t i) const {
    while (i < text_.size() &&
           (is_digit(text_[i]) || (text_[i] == '_' && i + 1 < text_.size() &&
                                   is_digit(text_[i + 1]) && is_digit(text_[i - 1]))))
      ++i;
    return i;
  }

  Outcome<void> lex_number() {
    const bool after_dot = !tokens_.empty() && tokens_.back().is_symbol(".");
    const char marker = static_cast<char>(peek(1) | 0x20);
    if (peek() == '0' && (marker == 'x' || marker == 'o' || marker == 'b'))
      return lex_based(marker == 'x' ? 16 : marker == 'o' ? 8 : 2);
    const std::size_t whole = digits_end(at_);
    std::size_t end = whole;
    const auto digit_at = [&](std::size_t i) { return i < text_.size() && is_digit(text_[i]); };
    if (!after_dot) {
      if (end < text_.size() && text_[end] == '.' && digit_at(end + 1)) end = digits_end(end + 1);
      if (end < text_.size() && (text_[end] | 0x20) == 'e') {
        const std::size_t sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-') ? 1 : 0;
        if (digit_at(end + 1 + sign)) end = digits_end(end + 1 + sign);
      }
    }
    std::string digits(text_.substr(at_, end - at_));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    if (end > whole) {
      double value = 0;
      const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (read.ec != std::errc()) return fault("a number is too large", line_);
      add(TokenKind::floating).floating = value;
    } else {
      if (digits.size() > 1 && digits[0] == '0' &&
          digits.find_first_not_of('0') != std::string::npos)
        return fault("a number starts with 0", line_);
      TRY(const Int value, parse_digits(digits, 10));
      add(TokenKind::integer).integer = value;
    }
    at_ = end;
    return {};
  }

  Outcome<void> lex_based(int base) {
    std::size_t end = at_ + 2;
    while (end < text_.size() && (is_name_start(text_[end]) || is_digit(text_[end])))
      ++end;
    std::string digits(text_.substr(at_ + 2, end - at_ - 2));
    digits.erase(std::remove(digits.begin(), digits.end(), '_'), digits.end());
    TRY(const Int value, parse_digits(digits, base));
    add(TokenKind::integer).integer = value;
    at_ = end;
    return {};
  }

  Outcome<Int> parse_digits(std::string_view digits, int base) const {
    Int value = 0;
    if (digits.empty()) return fault("a number has no digits", line_);
    for (const char c : digits) {
      const int digit = is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10;
      if (digit < 0 || digit >= base) return fault("a number has a wrong digit", line_);
      if (__builtin_mul_overflow(value, Int{base}, &value) ||
          __builtin_add_overflow(value, Int{digit}, &value))
        return fault("a number is too large", line_);
    }
    return value;
  }

  std::string source_;
  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;  // the last tag took its line break with it
  std::vector<Token> tokens_;
};

}  // namespace

Outcome<std::vector<Token>> tokenize(std::string_view source) {
  return Lexer(normalise(source)).run();
}

}  // namespace ponder::text::jinja
