#pragma once
// The rule that the Qwen pre-tokenizers share; they differ in whether marks belong to words.
#include <cstddef>
#include <string_view>

namespace ponder::text {

/// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?W+|\p{N}| ?[^\s W \p{N}]+[\r\n]*|\s*[\r\n]+
/// |\s+(?!\S)|\s+   where W is [\p{L}\p{M}] with `marks_are_words`, else \p{L}.
/// Alternatives are tried in that order, greedily.
std::size_t match_qwen(std::string_view text, std::size_t at, bool marks_are_words);

}  // namespace ponder::text
