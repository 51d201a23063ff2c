#pragma once
// A rendered prompt to token ids. Special tokens come only from what the template itself wrote;
// text of the caller's that looks like one stays text.
#include <vector>

#include "engine/text/chat_template.h"
#include "engine/text/tokenizer.h"

namespace ponder::text {

/// Ids of the joined pieces, cut only at the special tokens that lie wholly within the template's
/// own text. Between those cuts the text is one run for the tokenizer, wherever pieces begin, so
/// the ids are those of encode(join(pieces), true) whenever the caller's text holds no special
/// token and completes none.
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer,
                                   const std::vector<PromptPiece>& pieces);

}  // namespace ponder::text
