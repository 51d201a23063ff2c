#include "engine/text/prompt_encoding.h"

#include <algorithm>

namespace ponder::text {
namespace {

/// Collects text until a cut and encodes it as one run.
class Encoder {
 public:
  Encoder(const Tokenizer& tokenizer, std::size_t most) : tokenizer_(tokenizer), most_(most) {}

  void caller_text(const std::string& text) {
    if (!text.empty()) begins_.push_back(plain_.size());
    plain_ += text;
    if (!text.empty()) ends_.push_back(plain_.size());
  }
  void template_text(std::string_view text) { plain_ += text; }
  void special(TokenId id) {
    flush();
    out_.ids.push_back(id);
  }
  EncodedPrompt finish() {
    flush();
    return std::move(out_);
  }

 private:
  void flush() {
    const std::vector<TokenId> run =
        tokenizer_.encode(plain_, false, most_ - std::min(most_, out_.ids.size()));
    std::size_t ended = 0, bytes = 0;  // tokens, and what they come to
    const auto ids_before = [&](std::size_t at) {
      while (ended < run.size() && bytes + tokenizer_.bytes_of(run[ended]).size() <= at)
        bytes += tokenizer_.bytes_of(run[ended++]).size();
      return ended;
    };
    for (std::size_t i = 0; i < begins_.size(); ++i) {
      // Of the last token before it: other text behind it could have made it a longer one.
      const std::size_t before = ids_before(begins_[i]);
      out_.caller_text.push_back(out_.ids.size() + (before > 0 ? before - 1 : 0));
      out_.caller_ends.push_back(out_.ids.size() + ids_before(ends_[i] - 1));
    }
    out_.ids.insert(out_.ids.end(), run.begin(), run.end());
    plain_.clear();
    begins_.clear();
    ends_.clear();
  }

  const Tokenizer& tokenizer_;
  const std::size_t most_;
  EncodedPrompt out_;
  std::string plain_;                ///< since the last cut
  std::vector<std::size_t> begins_;  ///< of the caller's pieces, in `plain_`
  std::vector<std::size_t> ends_;
};

}  // namespace

EncodedPrompt encode_with_borders(const Tokenizer& tokenizer,
                                  const std::vector<PromptPiece>& pieces, std::size_t most) {
  Encoder encoder(tokenizer, most);
  for (std::size_t i = 0; i < pieces.size();) {
    if (!pieces[i].from_template) {
      encoder.caller_text(pieces[i++].text);
      continue;
    }
    // Neighbouring pieces of the template are one text.
    std::string own;
    while (i < pieces.size() && pieces[i].from_template)
      own += pieces[i++].text;
    std::size_t at = 0;
    for (const SpecialMatch& match : tokenizer.find_special(own)) {
      encoder.template_text(std::string_view(own).substr(at, match.at - at));
      encoder.special(match.id);
      at = match.at + match.size;
    }
    encoder.template_text(std::string_view(own).substr(at));
  }
  return encoder.finish();
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  return encode_with_borders(tokenizer, pieces).ids;
}

}  // namespace ponder::text
