#include "engine/run/state_budget.h"

#include <algorithm>

namespace ponder::run {
namespace {
constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
}  // namespace

StateBudget default_state_budget(std::optional<std::uint64_t> available) {
  const std::uint64_t free = available.value_or(0);
  return {std::clamp(free / 16, 64 * kMiB, 4 * kGiB), std::min(free / 8, 8 * kGiB)};
}

std::uint64_t default_context_budget(std::optional<std::uint64_t> available) {
  return available.value_or(0) / 4 * 3;
}

}  // namespace ponder::run
