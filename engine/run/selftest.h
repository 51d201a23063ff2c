#pragma once
// The same tokens by every way through the engine, of one model on this machine: greedy, and
// sampled at a high temperature with a seed. A row's numbers are bit-identical in any chunk, batch
// and state, so a difference is a fault of the machine or the build.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "engine/models/model.h"
#include "engine/text/tokenizer.h"

namespace ponder::run {

/// cold, warm (a state saved inside the prompt and gone on with, then found in the store by a
/// second run), restored (a snapshot), host (its copy in host memory), chunked (prefill in chunks
/// of 3, 64 and 100), batched (steps shared with three strangers), speculative (depths 1 to 5; only
/// where the model drafts), resumed (cut in the middle and read again).
struct SelftestLeg {
  std::string name;
  /// Index of the first token that differs from the cold run, in either kind of run.
  std::optional<std::int64_t> first_difference = {};
};

/// Calls `told` after each leg. True when all are equal; bad_request when the window is too small,
/// and the model's own errors.
Result<bool> selftest(models::Model& model, const text::Tokenizer& tokenizer,
                      const std::function<Result<void>(const SelftestLeg&)>& told);

}  // namespace ponder::run
