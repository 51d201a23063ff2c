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

struct EncodedPrompt {
  std::vector<TokenId> ids;
  /// For each piece of the caller's text, in order: so many ids come before it whatever it says.
  /// Where it may share a token with what stands before it, that token is left out.
  std::vector<std::size_t> caller_text = {};
  /// And for each where it ends: so many ids lie before its last byte, whatever stands behind it.
  std::vector<std::size_t> caller_ends = {};
};
/// The same ids, and where the caller's own text begins and ends in them. Stops soon after `most`
/// ids.
EncodedPrompt encode_with_borders(const Tokenizer& tokenizer,
                                  const std::vector<PromptPiece>& pieces,
                                  std::size_t most = SIZE_MAX);

}  // namespace ponder::text
