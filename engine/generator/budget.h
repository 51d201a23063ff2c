#pragma once
// The window rule, in one place for every generator. Pure.
#include <cstdint>

#include "engine/base/error.h"
#include "engine/generator/generator.h"

namespace ponder {

/// Up to here a prompt that does not fit is counted exactly, which is what a client needs to cut
/// its history; of a longer one the refusal says that it has at least so many tokens.
constexpr std::int64_t most_counted(std::int64_t n_ctx) {
  return 2 * n_ctx;
}

struct BudgetPlan {
  std::int64_t reasoning = 0;  ///< tokens the thinking may use
  std::int64_t answer = 0;     ///< tokens kept for the answer
  std::int64_t total = 0;      ///< tokens both may use together
};

/// Refused (context_length_exceeded with details n_prompt_tokens, n_reserved, n_ctx) exactly when
/// prompt + max(1, explicit reasoning + explicit answer budget) > n_ctx; nothing is trimmed.
/// Default budgets and max_tokens are lowered to what fits. Without budgets thinking may use what
/// is left less an answer reserve of min(8192, left / 4). `thinks` is false at effort none; an
/// integer effort comes as `effort_budget`.
Result<BudgetPlan> plan_budgets(std::int64_t prompt_tokens, std::int64_t n_ctx,
                                const Budgets& budgets, bool thinks,
                                std::optional<std::int64_t> effort_budget = {});

}  // namespace ponder
