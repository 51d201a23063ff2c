// Qwen3.5 and later: marks belong to words.
#include "engine/text/pre_tokenizer.h"
#include "engine/text/pre_tokenizer_qwen.h"

namespace ponder::text {

std::size_t match_qwen35(std::string_view text, std::size_t at) {
  return match_qwen(text, at, {.marks_are_words = true});
}

}  // namespace ponder::text
