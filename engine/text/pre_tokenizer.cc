#include "engine/text/pre_tokenizer.h"

#include <iterator>

namespace ponder::text {
namespace {

struct Row {
  std::string_view name;
  PieceMatcher matcher;
};
constexpr Row kRows[] = {
    {"qwen2", match_qwen2},
    {"qwen35", match_qwen35},
};

}  // namespace

PieceMatcher find_pre_tokenizer(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.matcher;
  return nullptr;
}

std::string_view pre_tokenizer_names() {
  static_assert(std::size(kRows) == 2, "name the new row below");
  return "qwen2, qwen35";
}

}  // namespace ponder::text
