// Llama 3: the rule of Qwen2.5 with up to three number characters in a piece.
#include "engine/text/pre_tokenizer.h"
#include "engine/text/pre_tokenizer_qwen.h"

namespace ponder::text {

std::size_t match_llama(std::string_view text, std::size_t at) {
  return match_qwen(text, at, {.numbers = 3});
}

}  // namespace ponder::text
