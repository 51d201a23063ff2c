#include "engine/text/pre_tokenizer.h"

#include <iterator>

namespace ponder::text {
namespace {

struct Row {
  std::string_view name;
  PieceMatcher matcher;
};
constexpr Row kRows[] = {
    {"llama-bpe", match_llama},
    {"qwen2", match_qwen2},
    {"qwen35", match_qwen35},
    {"smollm", match_smollm},
};

}  // namespace

PieceMatcher find_pre_tokenizer(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.matcher;
  return nullptr;
}

std::string_view pre_tokenizer_names() {
  static_assert(std::size(kRows) == 4, "name the new row below");
  return "llama-bpe, qwen2, qwen35, smollm";
}

}  // namespace ponder::text
