#include "engine/worker/greedy.h"

#include <algorithm>

namespace ponder::worker {

Result<void> read_prompt(models::Model& model, models::SequenceState& sequence,
                         std::span<const text::TokenId> prompt, std::int64_t chunk,
                         std::span<float> logits) {
  const auto most = static_cast<std::size_t>(std::clamp<std::int64_t>(chunk, 1, model.chunk()));
  while (!prompt.empty()) {
    const std::size_t n = std::min(most, prompt.size());
    const bool last = n == prompt.size();
    TRY_VOID(
        model.forward(sequence, prompt.first(n), last ? 1 : 0, last ? logits : std::span<float>()));
    prompt = prompt.subspan(n);
  }
  return {};
}

text::TokenId likeliest(std::span<const float> logits, std::int32_t known) {
  const auto row = logits.first(static_cast<std::size_t>(known));
  return static_cast<text::TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
}

Result<std::vector<text::TokenId>> generate_greedy(models::Model& model,
                                                   models::SequenceState& sequence,
                                                   const text::Tokenizer& tokenizer,
                                                   std::span<const text::TokenId> prompt,
                                                   std::int64_t chunk, std::int64_t n) {
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  TRY_VOID(read_prompt(model, sequence, prompt, chunk, logits));
  std::vector<text::TokenId> ids{likeliest(logits, tokenizer.size())};
  while (static_cast<std::int64_t>(ids.size()) < n) {
    TRY_VOID(model.forward(sequence, std::span(&ids.back(), 1), 1, logits));
    ids.push_back(likeliest(logits, tokenizer.size()));
  }
  return ids;
}

}  // namespace ponder::worker
