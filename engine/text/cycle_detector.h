#pragma once
// Says when a model has fallen into a loop: its last tokens are one short sequence over and over.
// Conservative on purpose, because a false alarm ends a good answer: by default the same cycle of
// up to 256 tokens must have come 8 times without any change and span at least 512 tokens, so that
// tables with differing numbers, rulers, long runs of blanks and iterated traces with counting
// steps never trigger. One per output stream. Not thread-safe.
//
// Work per token is one pass over the periods, at most 256 comparisons: linear in the output.
#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/text/tokenizer.h"

namespace ponder::text {

struct CycleOptions {
  std::size_t max_period = 256;  ///< tokens
  std::size_t min_repeats = 8;   ///< whole cycles
  std::size_t min_tokens = 512;  ///< that the cycles span together
};

class CycleDetector {
 public:
  explicit CycleDetector(CycleOptions options = {});

  /// The next token. True from the token on that completes the last cycle needed, for as long as
  /// the cycle goes on.
  bool push(TokenId id);
  /// The shortest period that the last push() found, or 0.
  std::size_t period() const { return period_; }

 private:
  CycleOptions options_;
  std::vector<TokenId> recent_;         // ring of the last max_period tokens, twice in a row
  std::vector<std::uint32_t> matches_;  // [period - 1]: tokens in a row equal to the one before it
  std::size_t count_ = 0;
  std::size_t period_ = 0;
};

}  // namespace ponder::text
