#pragma once
// The simplest way through a model: read a prompt, take the likeliest token each time.
#include <span>
#include <vector>

#include "engine/models/model.h"
#include "engine/text/tokenizer.h"

namespace ponder::worker {

/// Reads `prompt` in chunks of at most `chunk` (and model.chunk()) tokens; `logits` [vocab] are
/// those of the last one.
Result<void> read_prompt(models::Model& model, models::SequenceState& sequence,
                         std::span<const text::TokenId> prompt, std::int64_t chunk,
                         std::span<float> logits);

/// The likeliest of the first `known` ids, the lowest on a tie.
text::TokenId likeliest(std::span<const float> logits, std::int32_t known);

/// `n` greedy tokens after `prompt`, end tokens taken like any other.
Result<std::vector<text::TokenId>> generate_greedy(models::Model& model,
                                                   models::SequenceState& sequence,
                                                   const text::Tokenizer& tokenizer,
                                                   std::span<const text::TokenId> prompt,
                                                   std::int64_t chunk, std::int64_t n);

}  // namespace ponder::worker
