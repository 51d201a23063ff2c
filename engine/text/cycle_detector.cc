#include "engine/text/cycle_detector.h"

#include <algorithm>
#include <limits>

#include "engine/base/check.h"

namespace ponder::text {

CycleDetector::CycleDetector(CycleOptions options)
    : options_(options), recent_(2 * options.max_period), matches_(options.max_period, 0) {
  CHECK(options.max_period > 0 && options.min_repeats > 1);
}

bool CycleDetector::push(TokenId id) {
  period_ = 0;
  const std::size_t known = std::min(count_, options_.max_period);
  const std::size_t slot = count_ % options_.max_period;
  const TokenId* now = recent_.data() + options_.max_period + slot;  // now[-p]: p tokens ago
  for (std::size_t period = 1; period <= known; ++period) {
    std::uint32_t& matches = matches_[period - 1];
    if (*(now - period) != id) {
      matches = 0;
      continue;
    }
    if (matches < std::numeric_limits<std::uint32_t>::max()) ++matches;
    // The cycles so far span the matches and the first cycle, which had nothing to match.
    const std::size_t span = matches + period;
    const std::size_t needed = std::max(options_.min_repeats * period, options_.min_tokens);
    if (period_ == 0 && span >= needed) period_ = period;
  }
  recent_[slot] = recent_[slot + options_.max_period] = id;
  ++count_;
  return period_ != 0;
}

}  // namespace ponder::text
