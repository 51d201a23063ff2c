#include "engine/text/cycle_detector.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <optional>
#include <random>

#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

/// The definition, word for word: some period whose cycles fill the end of the text.
std::size_t slow_period(const std::vector<TokenId>& ids, const CycleOptions& o) {
  for (std::size_t period = 1; period <= o.max_period; ++period) {
    const std::size_t needed = std::max(o.min_repeats * period, o.min_tokens);
    if (ids.size() < needed) continue;
    bool same = true;
    for (std::size_t i = ids.size() - needed; same && i + period < ids.size(); ++i)
      same = ids[i] == ids[i + period];
    if (same) return period;
  }
  return 0;
}

/// The number of tokens read when it first triggers.
std::optional<std::size_t> triggers_at(const std::vector<TokenId>& ids) {
  CycleDetector detector;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (detector.push(ids[i])) return i + 1;
  return std::nullopt;
}
std::vector<TokenId> repeated(std::vector<TokenId> start, const std::vector<TokenId>& cycle,
                              std::size_t tokens) {
  for (std::size_t i = 0; i < tokens; ++i)
    start.push_back(cycle[i % cycle.size()]);
  return start;
}
std::vector<TokenId> counting(std::size_t period) {
  std::vector<TokenId> cycle;
  for (std::size_t i = 0; i < period; ++i)
    cycle.push_back(static_cast<TokenId>(i + 10));
  return cycle;
}
std::vector<TokenId> ids_of(const std::string& text) {
  return pebble_tokenizer().encode(text, false);
}

// T30, vllm-mlx#723, llama.cpp#26039: a loop burnt the whole budget; penalties did not stop it.
TEST(CycleDetector, FindsACycleOnceItHasComeOftenEnough) {
  EXPECT_EQ(triggers_at(repeated({}, {7}, 1000)), 512u);
  EXPECT_EQ(triggers_at(repeated({1, 2, 3}, {7, 8}, 1000)), 515u);
  EXPECT_EQ(triggers_at(repeated({1}, counting(64), 1000)), 513u);
  EXPECT_EQ(triggers_at(repeated({1}, counting(100), 2000)), 801u);
  EXPECT_EQ(triggers_at(repeated({1}, counting(256), 3000)), 2049u);
  EXPECT_EQ(triggers_at(repeated({1}, counting(257), 9000)), std::nullopt);
}
TEST(CycleDetector, NamesTheShortestPeriod) {
  CycleDetector detector;
  for (const TokenId id : repeated({}, {5, 6, 7}, 600))
    detector.push(id);
  EXPECT_EQ(detector.period(), 3u);
  detector.push(99);
  EXPECT_EQ(detector.period(), 0u);
}
TEST(CycleDetector, OneDifferentTokenStartsOver) {
  auto ids = repeated({}, counting(10), 500);
  ids.push_back(3);
  EXPECT_EQ(triggers_at(repeated(ids, counting(10), 505)), std::nullopt);
  EXPECT_NE(triggers_at(repeated(ids, counting(10), 512)), std::nullopt);
}
TEST(CycleDetector, AgreesWithTheDefinition) {
  std::mt19937 random(3);
  const CycleOptions options{.max_period = 7, .min_repeats = 3, .min_tokens = 12};
  for (int round = 0; round < 300; ++round) {
    CycleDetector detector(options);
    std::vector<TokenId> ids;
    const std::size_t period = 1 + random() % 9;
    for (int i = 0; i < 80; ++i) {
      const bool repeats = ids.size() >= period && random() % 25 != 0;
      ids.push_back(repeats ? ids[ids.size() - period] : static_cast<TokenId>(random() % 3));
      const std::size_t expected = slow_period(ids, options);
      EXPECT_EQ(detector.push(ids.back()), expected != 0);
      EXPECT_EQ(detector.period(), expected);
    }
  }
}

TEST(CycleDetector, TablesWithDifferingNumbersAreNoCycle) {
  std::string table, steps, list;
  for (int i = 0; i < 2000; ++i) {
    table += "| " + std::to_string(i) + " | 0 | 0 | yes |\n";
    list += "- item " + std::to_string(i) + ": open\n";
  }
  // An iterated remainder that runs in a circle of four, its steps counted.
  for (int i = 1, x = 3; i < 2000; ++i, x = x * 3 % 10)
    steps += "Step " + std::to_string(i) + ": " + std::to_string(x) + " * 3 mod 10\n";
  EXPECT_EQ(triggers_at(ids_of(table)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(list)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(steps)), std::nullopt);
}
TEST(CycleDetector, RulersAndBlanksOfAPageAreNoCycle) {
  std::string page;
  for (int i = 0; i < 60; ++i)
    page += std::string(120, '-') + "\n" + std::string(100, ' ') + std::to_string(i) + "\n";
  EXPECT_EQ(triggers_at(ids_of(page)), std::nullopt);
}
// T30: a table of similar rows is no loop.
TEST(CycleDetector, TablesWithOneDifferingCellAreNoCycle) {
  std::string numbers, markdown, matrix;
  for (int i = 0; i < 1500; ++i) {
    numbers += "0.000 0.000 0.000 " + std::to_string(i % 10) + ".000 0.000 " +
               std::to_string(i * i % 7) + ".000\n";
    markdown += "|" + std::string(20, ' ') + "| n/a | n/a | n/a | " + std::to_string(i) + " |\n";
  }
  for (int row = 0; row < 60; ++row)  // ones along the diagonal, among zeros
    for (int column = 0; column < 60; ++column)
      matrix += row == column ? "1 " : column == 59 ? "0\n" : "0 ";
  EXPECT_EQ(triggers_at(ids_of(markdown)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(matrix)), std::nullopt);
  // i * i mod 7 and i mod 10 come again together after 70 rows, far beyond the longest period.
  EXPECT_EQ(triggers_at(ids_of(numbers)), std::nullopt);
}
TEST(CycleDetector, ASmallTableOfEqualRowsAndRepeatedCodeAreNoCycle) {
  std::string rows = "| a | b |\n|---|---|\n", code, drawing;
  for (int i = 0; i < 24; ++i)
    rows += "| 0 | 0 | 0 |\n";
  for (int i = 0; i < 40; ++i)
    code += "    pass\n";
  for (int i = 0; i < 12; ++i)
    drawing += "+" + std::string(76, '-') + "+\n|" + std::string(76, ' ') + "|\n";
  EXPECT_EQ(triggers_at(ids_of(rows)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(code)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(drawing)), std::nullopt);
  EXPECT_EQ(triggers_at(ids_of(std::string(2000, '='))), std::nullopt);
}
TEST(CycleDetector, AnswersOfTheBundledEvaluationAreNoCycle) {
  for (const json::object& row : read_json_lines("models/pebble/eval.jsonl"))
    EXPECT_EQ(triggers_at(ids_of(to_json(row))), std::nullopt);
}
TEST(CycleDetector, ALoopingModelIsFound) {
  std::string text = "Let me think about this carefully.\n";
  for (int i = 0; i < 200; ++i)
    text += "Wait, let me check that again. The answer is 42.\n";
  EXPECT_NE(triggers_at(ids_of(text)), std::nullopt);
}
TEST(CycleDetector, AMillionTokensTakeLinearTime) {
  CycleDetector detector;
  const std::clock_t begin = std::clock();
  bool found = false;
  for (int i = 0; i < 1'000'000; ++i)
    found = detector.push(i % 2) || found;
  EXPECT_TRUE(found);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);  // measured: 0.4 s
}

}  // namespace
}  // namespace ponder::text
