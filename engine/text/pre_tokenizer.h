#pragma once
// Pre-tokenizers: rules that cut text into the pieces inside which BPE may merge. Each is a
// hand-written matcher for the regular expression of its model family, linear in the text.
// A new one is one file with its function and one row in pre_tokenizer.cc.
#include <cstddef>
#include <string_view>

namespace ponder::text {

/// The length in bytes of the piece that starts at `text[at]` (at < size): at least 1, never past
/// the end. Bytes that are not UTF-8 count as characters of no class, one byte each.
using PieceMatcher = std::size_t (*)(std::string_view text, std::size_t at);

/// The matcher of that name (tokenizer.ggml.pre), or nullptr.
PieceMatcher find_pre_tokenizer(std::string_view name);
/// The names it knows, for messages: "llama-bpe, qwen2, qwen35, smollm".
std::string_view pre_tokenizer_names();

std::size_t match_llama(std::string_view text, std::size_t at);
std::size_t match_qwen2(std::string_view text, std::size_t at);
std::size_t match_qwen35(std::string_view text, std::size_t at);
std::size_t match_smollm(std::string_view text, std::size_t at);

}  // namespace ponder::text
