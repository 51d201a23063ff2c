#include "engine/generator/budget.h"

#include <fmt/core.h>

#include <algorithm>

namespace ponder {
namespace {

// Far above any window, so that sums of two cannot overflow.
constexpr std::int64_t kMost = std::int64_t{1} << 40;
constexpr std::int64_t kAnswerReserve = 8192;

std::int64_t bounded(std::int64_t n) {
  return std::clamp<std::int64_t>(n, 0, kMost);
}

}  // namespace

// The names of the numbers: `left` is the window less the prompt. A budget is explicit when the
// caller wrote it; an integer effort and defaulted budgets are wishes, lowered to what fits.
Result<BudgetPlan> plan_budgets(std::int64_t prompt_tokens, std::int64_t n_ctx,
                                const Budgets& budgets, bool thinks,
                                std::optional<std::int64_t> effort_budget) {
  std::optional<std::int64_t> reasoning = budgets.max_reasoning_tokens;
  std::optional<std::int64_t> answer = budgets.max_answer_tokens;
  if (reasoning) reasoning = bounded(*reasoning);
  if (answer) answer = bounded(*answer);

  const std::int64_t explicit_sum =
      budgets.defaulted ? 0 : reasoning.value_or(0) + answer.value_or(0);
  const std::int64_t reserved = std::max<std::int64_t>(1, explicit_sum);
  prompt_tokens = bounded(prompt_tokens);
  if (prompt_tokens + reserved > n_ctx) {
    Error error{ErrorCode::context_length_exceeded,
                fmt::format("the prompt has {}{} tokens and {} are reserved for the output, more "
                            "than the window of {} holds",
                            prompt_tokens > most_counted(n_ctx) ? "at least " : "", prompt_tokens,
                            reserved, n_ctx),
                explicit_sum > 1 && prompt_tokens < n_ctx
                    ? "lower max_reasoning_tokens or max_answer_tokens, or shorten the prompt"
                    : "shorten the prompt, or give the daemon a larger --ctx"};
    error.details = {
        {"n_prompt_tokens", prompt_tokens}, {"n_reserved", reserved}, {"n_ctx", n_ctx}};
    return fail(std::move(error));
  }

  const std::int64_t left = n_ctx - prompt_tokens;
  const std::int64_t reserve = std::min(kAnswerReserve, left / 4);
  const bool firm_reasoning = reasoning && !budgets.defaulted;
  if (effort_budget) reasoning = std::min(bounded(*effort_budget), reasoning.value_or(kMost));
  if (!thinks) reasoning = 0;

  // What the answer is sure of: its own budget, else the reserve. A defaulted answer budget gives
  // way to thinking down to a quarter of what is left.
  std::int64_t kept = 0;
  if (answer && budgets.defaulted) {
    kept = std::min(*answer, std::max(left / 4, left - reasoning.value_or(left)));
  } else if (answer) {
    kept = *answer;
  } else if (!firm_reasoning) {
    kept = reserve;
  }
  const std::int64_t thinking = std::min(reasoning.value_or(left), left - kept);

  BudgetPlan plan;
  plan.total = answer ? thinking + std::min(*answer, left - thinking) : left;
  if (budgets.max_tokens)
    plan.total = std::min(plan.total, std::max<std::int64_t>(1, bounded(*budgets.max_tokens)));
  plan.reasoning = std::min(thinking, plan.total);
  plan.answer = plan.total - plan.reasoning;
  return plan;
}

}  // namespace ponder
