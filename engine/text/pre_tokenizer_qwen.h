#pragma once
// The rule that the pre-tokenizers of Qwen and Llama 3 share; they differ in whether marks belong
// to words and in how many number characters make a piece.
#include <cstddef>
#include <string_view>

namespace ponder::text {

struct QwenRule {
  bool marks_are_words = false;  ///< W is [\p{L}\p{M}], else \p{L}
  int numbers = 1;               ///< N: the most number characters of a piece
};

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}{1,N}| ?[^\s W \p{N}]+[\r\n]*
/// |\s*[\r\n]+|\s+(?!\S)|\s+   Alternatives are tried in that order, greedily.
std::size_t match_qwen(std::string_view text, std::size_t at, const QwenRule& rule);

}  // namespace ponder::text
