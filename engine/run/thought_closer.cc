#include "engine/run/thought_closer.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace ponder::run {
namespace {

// Room for a sentence or two, and little beside a budget that is worth closing at.
constexpr std::int64_t kGrace = 64;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// The part of `all` up to and with `tag`, in tokens; all of it where the tag is no token.
std::int64_t up_to(const std::vector<text::TokenId>& all, text::TokenId tag) {
  const auto at = std::find(all.begin(), all.end(), tag);
  return at == all.end() ? static_cast<std::int64_t>(all.size()) : at - all.begin() + 1;
}

/// `text` without blanks at its end ends a sentence. A point after a digit may be in the middle of
/// a number, or the head of a list's entry.
bool ends_sentence(std::string_view text, char before) {
  constexpr std::array<std::string_view, 6> kEnds{".", "!", "?", "。", "！", "？"};
  const std::size_t size = text.find_last_not_of(" \t\"')*") + 1;  // npos + 1 is 0
  text = text.substr(0, size);
  const auto ends = [&](std::string_view end) { return text.ends_with(end); };
  if (std::none_of(kEnds.begin(), kEnds.end(), ends)) return false;
  const char last_but_one = text.size() > 1 ? text[text.size() - 2] : before;
  return !(text.back() == '.' && is_digit(last_but_one));
}

}  // namespace

ThoughtCloser::ThoughtCloser(const text::Tokenizer& tokenizer, bool on_limit, std::int64_t limit)
    : tokenizer_(&tokenizer), on_limit_(on_limit) {
  Tags tags;
  tags.after_text = tokenizer.encode("\n</think>\n\n", true);
  tags.after_line = tokenizer.encode("</think>\n\n", true);
  tags.length = up_to(tags.after_text, tokenizer.special_id("</think>"));
  last_ = std::max<std::int64_t>(0, limit - tags.length);
  grace_ = std::min(kGrace, last_ / 8);
  tags_ = std::make_shared<const Tags>(std::move(tags));
}

bool ThoughtCloser::must_close(std::int64_t reasoning) const {
  if (at_once_) return true;
  if (!wanted()) return false;
  if (reasoning >= last_) return true;
  if (on_limit_ && border_ && reasoning >= last_ - grace_) return true;
  if (!asked_) return false;
  return border_ || reasoning - asked_at_.value_or(reasoning) >= kGrace;
}

std::optional<text::TokenId> ThoughtCloser::due(bool thinking, std::int64_t reasoning) const {
  if (closing()) return closing_tokens()[next_];
  if (forced() || !thinking || !must_close(reasoning)) return std::nullopt;
  return line_ended_ ? tags_->after_line.front() : tags_->after_text.front();
}

void ThoughtCloser::push(text::TokenId id, bool thinking, std::int64_t reasoning) {
  if (asked_ && !asked_at_ && thinking) asked_at_ = reasoning;
  if (closing() && closing_tokens()[next_] != id) {
    next_ = 0;  // an earlier run's tokens, which only looked like a closing
  } else if (closing()) {
    ++next_;
  } else if (due(thinking, reasoning) == id) {
    after_line_form_ = line_ended_;
    next_ = 1;
  }
  read_text(id);
}

void ThoughtCloser::read_text(text::TokenId id) {
  const std::string_view text = tokenizer_->bytes_of(id);
  if (text.empty()) return;
  // Blanks after the end of a sentence leave it ended.
  if (text.find_first_not_of(" \t") != std::string_view::npos) {
    line_ended_ = text.back() == '\n';
    border_ = line_ended_ || ends_sentence(text, last_byte_);
  }
  last_byte_ = text.back();
}

}  // namespace ponder::run
