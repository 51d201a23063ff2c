// Qwen2.5 and Qwen3: marks are symbols, so decomposed accents part from their letters.
#include "engine/text/pre_tokenizer.h"
#include "engine/text/pre_tokenizer_qwen.h"

namespace ponder::text {

std::size_t match_qwen2(std::string_view text, std::size_t at) {
  return match_qwen(text, at, {});
}

}  // namespace ponder::text
