#include "engine/generator/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ponder {
namespace {

Budgets explicit_budgets(std::optional<std::int64_t> reasoning,
                         std::optional<std::int64_t> answer) {
  Budgets b;
  b.max_reasoning_tokens = reasoning;
  b.max_answer_tokens = answer;
  return b;
}

// T40, ollama#4967, #3839: a long prompt was cut without a word.
TEST(Budget, AFullWindowIsAcceptedAndOneTokenMoreIsRefusedWithTheNumbers) {
  EXPECT_TRUE(plan_budgets(900, 1000, explicit_budgets(60, 40), true));
  const auto over = plan_budgets(901, 1000, explicit_budgets(60, 40), true);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(over.error().details.at("n_prompt_tokens"), 901);
  EXPECT_EQ(over.error().details.at("n_reserved"), 100);
  EXPECT_EQ(over.error().details.at("n_ctx"), 1000);
}

TEST(Budget, OfAPromptThatIsNotCountedToItsEndTheRefusalSaysSo) {
  EXPECT_EQ(plan_budgets(2000, 1000, {}, true).error().message.find("at least"), std::string::npos);
  EXPECT_NE(plan_budgets(2001, 1000, {}, true).error().message.find("at least 2001 tokens"),
            std::string::npos);
}

TEST(Budget, WithoutBudgetsOnePlaceIsReserved) {
  EXPECT_TRUE(plan_budgets(999, 1000, {}, true));
  const auto full = plan_budgets(1000, 1000, {}, true);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().details.at("n_reserved"), 1);
  EXPECT_FALSE(plan_budgets(1000, 1000, explicit_budgets(0, std::nullopt), true));
}

TEST(Budget, WithoutBudgetsThinkingLeavesTheAnswerReserve) {
  BudgetPlan p = plan_budgets(1000, 32768, {}, true).value();
  EXPECT_EQ(p.reasoning, 31768 - 31768 / 4);
  EXPECT_EQ(p.total, 31768);
  p = plan_budgets(0, 262144, {}, true).value();
  EXPECT_EQ(p.answer, 8192);
  EXPECT_EQ(p.reasoning, 262144 - 8192);
}

TEST(Budget, MaxTokensIsLoweredToWhatFits) {
  Budgets b;
  b.max_tokens = 1'000'000;
  EXPECT_EQ(plan_budgets(100, 1000, b, true).value().total, 900);
  b.max_tokens = 50;
  const BudgetPlan p = plan_budgets(100, 1000, b, true).value();
  EXPECT_EQ(p.total, 50);
  EXPECT_EQ(p.reasoning, 50);  // thinking and answer together: no more of it is kept apart
}

TEST(Budget, DefaultsAreLoweredAndKeepAQuarterForTheAnswer) {
  Budgets b = explicit_budgets(131072, 8192);
  EXPECT_FALSE(plan_budgets(100, 32768, b, true));
  b.defaulted = true;
  BudgetPlan p = plan_budgets(768, 32768, b, true).value();
  EXPECT_EQ(p.answer, 8000);
  EXPECT_EQ(p.reasoning, 24000);
  p = plan_budgets(100, 262144, b, true).value();
  EXPECT_EQ(p.reasoning, 131072);
  EXPECT_EQ(p.answer, 8192);
  EXPECT_EQ(p.total, 131072 + 8192);
}

TEST(Budget, AnIntegerEffortIsAWishThatIsLowered) {
  BudgetPlan p = plan_budgets(0, 1000, {}, true, 100).value();
  EXPECT_EQ(p.reasoning, 100);
  EXPECT_EQ(p.answer, 900);
  p = plan_budgets(0, 1000, {}, true, 5000).value();
  EXPECT_EQ(p.reasoning, 750);
  p = plan_budgets(0, 1000, explicit_budgets(50, std::nullopt), true, 100).value();
  EXPECT_EQ(p.reasoning, 50);
}

TEST(Budget, WithoutThinkingAllIsForTheAnswer) {
  BudgetPlan p = plan_budgets(100, 1000, {}, false).value();
  EXPECT_EQ(p.reasoning, 0);
  EXPECT_EQ(p.answer, 900);
  p = plan_budgets(100, 1000, explicit_budgets(std::nullopt, 30), false).value();
  EXPECT_EQ(p.total, 30);
}

// The rule as DESIGN states it, in one line, against random requests; and what every plan keeps.
TEST(Budget, PropertyRefusedExactlyByTheRuleAndNeverOverTheWindow) {
  std::mt19937_64 random(7);
  const auto maybe = [&](std::int64_t most) -> std::optional<std::int64_t> {
    if (random() % 3 == 0) return std::nullopt;
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
  };
  for (int round = 0; round < 200'000; ++round) {
    const auto n_ctx = static_cast<std::int64_t>(1 + random() % 300);
    const auto prompt = static_cast<std::int64_t>(random() % 320);
    Budgets b = explicit_budgets(maybe(200), maybe(200));
    b.max_tokens = maybe(400);
    if (b.max_tokens && *b.max_tokens == 0) b.max_tokens = 1;
    b.defaulted = random() % 3 == 0;
    const bool thinks = random() % 4 != 0;
    const auto effort = random() % 3 == 0 ? maybe(400) : std::nullopt;

    const auto plan = plan_budgets(prompt, n_ctx, b, thinks, effort);
    const std::int64_t sum =
        b.defaulted ? 0 : b.max_reasoning_tokens.value_or(0) + b.max_answer_tokens.value_or(0);
    ASSERT_EQ(!plan, prompt + std::max<std::int64_t>(1, sum) > n_ctx);
    if (!plan) continue;
    ASSERT_GE(plan->reasoning, 0);
    ASSERT_GE(plan->answer, 0);
    ASSERT_EQ(plan->total, plan->reasoning + plan->answer);
    ASSERT_LE(prompt + plan->total, n_ctx);
    ASSERT_LE(plan->total, b.max_tokens.value_or(INT64_MAX));
    ASSERT_LE(plan->reasoning, thinks ? effort.value_or(INT64_MAX) : 0);
    ASSERT_LE(plan->reasoning, b.max_reasoning_tokens.value_or(INT64_MAX));
    if (!b.defaulted && !b.max_tokens && !effort && thinks) {
      // An explicit budget is granted in full.
      ASSERT_EQ(plan->reasoning, b.max_reasoning_tokens.value_or(plan->reasoning));
      ASSERT_GE(plan->answer, b.max_answer_tokens.value_or(0));
    }
  }
}

TEST(Budget, HugeNumbersDoNotOverflow) {
  Budgets b = explicit_budgets(INT64_MAX, INT64_MAX);
  EXPECT_FALSE(plan_budgets(INT64_MAX, 1000, b, true));
  b.defaulted = true;
  b.max_tokens = INT64_MAX;
  EXPECT_EQ(plan_budgets(0, 1000, b, true, INT64_MAX).value().total, 1000);
}

}  // namespace
}  // namespace ponder
