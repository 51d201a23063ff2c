#pragma once
// Decides when thinking must be closed from outside, and with which tokens. Two reasons: the
// reasoning budget of a request with on_limit "answer" is nearly spent, or somebody asked for the
// answer now. Thinking is closed after the end of a sentence or line where one comes soon, so that
// the model goes on from a whole thought; else in the middle of one.
//
// A small value: a copy can be fed drafts to see what would be due after them.
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/text/tokenizer.h"

namespace ponder::run {

class ThoughtCloser {
 public:
  /// `limit`: the tokens that the thinking may use, the closing tag included. `on_limit`: close
  /// when they are nearly spent.
  ThoughtCloser(const text::Tokenizer& tokenizer, bool on_limit, std::int64_t limit);

  /// Close soon, whatever the budget.
  void ask() { asked_ = true; }
  /// Thinking that ends in another way than by its tag is to be closed, not given up.
  bool wanted() const { return on_limit_ || asked_; }
  /// In the middle of the closing tokens.
  bool closing() const { return next_ > 0 && next_ < closing_tokens().size(); }
  /// The closing was begun by this, not by the model.
  bool forced() const { return next_ > 0; }

  /// The token that must come next; none: whatever the model says. `reasoning`: tokens of
  /// thinking so far.
  std::optional<text::TokenId> due(bool thinking, std::int64_t reasoning) const;
  /// Close at once: from here on due() is the first closing token.
  void close_now() { at_once_ = true; }
  /// Reads the next token. `thinking` and `reasoning` as they were before it.
  void push(text::TokenId id, bool thinking, std::int64_t reasoning);

 private:
  struct Tags {
    std::vector<text::TokenId> after_text;  // "\n</think>\n\n"
    std::vector<text::TokenId> after_line;  // "</think>\n\n"
    std::int64_t length = 0;                // of the part that counts as thinking, at most
  };
  const std::vector<text::TokenId>& closing_tokens() const {
    return after_line_form_ ? tags_->after_line : tags_->after_text;
  }
  bool must_close(std::int64_t reasoning) const;
  void read_text(text::TokenId id);

  const text::Tokenizer* tokenizer_;
  std::shared_ptr<const Tags> tags_;
  bool on_limit_;
  std::int64_t last_;   // the most tokens of thinking before the closing ones
  std::int64_t grace_;  // how long before that a border is good enough
  bool asked_ = false;
  bool at_once_ = false;
  std::optional<std::int64_t> asked_at_ = {};
  std::size_t next_ = 0;  // the closing token due, once begun
  bool after_line_form_ = false;
  bool border_ = true;      // the text so far ends a sentence or line
  bool line_ended_ = true;  // a line
  char last_byte_ = '\n';
};

}  // namespace ponder::run
