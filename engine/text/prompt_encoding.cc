#include "engine/text/prompt_encoding.h"

namespace ponder::text {

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces) {
  std::vector<TokenId> ids;
  std::string plain;  // since the last cut
  const auto flush = [&] {
    const std::vector<TokenId> run = tokenizer.encode(plain, false);
    ids.insert(ids.end(), run.begin(), run.end());
    plain.clear();
  };
  for (std::size_t i = 0; i < pieces.size();) {
    if (!pieces[i].from_template) {
      plain += pieces[i++].text;
      continue;
    }
    // Neighbouring pieces of the template are one text.
    std::string own;
    while (i < pieces.size() && pieces[i].from_template)
      own += pieces[i++].text;
    std::size_t at = 0;
    for (const SpecialMatch& match : tokenizer.find_special(own)) {
      plain.append(own, at, match.at - at);
      flush();
      ids.push_back(match.id);
      at = match.at + match.size;
    }
    plain.append(own, at);
  }
  flush();
  return ids;
}

}  // namespace ponder::text
