// Rows on trial and steps of several sequences: whatever is kept, state and logits are those of a
// plain run, bit for bit, in every instruction set.
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/unit/models/state_runs.h"

namespace ponder::models::testing {
namespace {

constexpr LoadOptions kOptions = {
    .n_ctx = 256, .threads = 2, .kv = KvType::f16, .chunk = 64, .drafts = true};

class TrialOn : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    setenv("PONDER_CPU", GetParam().c_str(), 1);
    model_ = load_bytes(tiny_hybrid(), kOptions);
    unsetenv("PONDER_CPU");
  }
  std::unique_ptr<Model> model_;
};

std::vector<std::string> sets() {
  std::vector<std::string> out;
  for (const kernels::OpTable* table : kernels::runnable_cpu_ops())
    out.emplace_back(table->name);
  return out;
}
INSTANTIATE_TEST_SUITE_P(All, TrialOn, ::testing::ValuesIn(sets()),
                         [](const auto& p) { return p.param; });

TEST_P(TrialOn, KeepsAnyNumberOfRowsAsIfTheyHadBeenRead) {
  const PlainRun plain(*model_, random_ids(model_->vocab(), 100));
  const std::int32_t vocab = model_->vocab();
  const auto sequence = model_->new_sequence(), other = model_->new_sequence();
  for (std::size_t rows = 1; rows <= 16; ++rows)
    for (std::size_t kept = 0; kept <= rows; ++kept) {
      const std::size_t at = 64 - rows / 2;  // across the end of a page
      ASSERT_TRUE(model_->restore(*sequence, *plain.snapshots[at]));
      Ids ids(plain.ids.begin() + static_cast<std::ptrdiff_t>(at),
              plain.ids.begin() + static_cast<std::ptrdiff_t>(at + rows));
      for (std::size_t i = kept; i < rows; ++i)
        ids[i] = (ids[i] + 1) % vocab;
      std::vector<float> logits(rows * static_cast<std::size_t>(vocab));
      const StepPart part{sequence.get(), ids, static_cast<std::int64_t>(rows), true};
      ASSERT_TRUE(model_->forward(std::span(&part, 1), logits));
      EXPECT_EQ(sequence->trial(), static_cast<std::int64_t>(rows));
      EXPECT_EQ(sequence->length(), static_cast<std::int64_t>(at));
      const auto right = std::span(logits).first(kept * static_cast<std::size_t>(vocab));
      EXPECT_EQ(first_difference(right, plain.rows(at, kept), vocab), -1);

      model_->keep(*sequence, static_cast<std::int64_t>(kept));
      EXPECT_EQ(sequence->trial(), 0);
      const std::size_t now = at + kept;
      const Ids next(plain.ids.begin() + static_cast<std::ptrdiff_t>(now),
                     plain.ids.begin() + static_cast<std::ptrdiff_t>(now + 3));
      ASSERT_TRUE(model_->restore(*other, *plain.snapshots[now]));
      EXPECT_EQ(
          first_difference(guess(*model_, *sequence, next), guess(*model_, *other, next), vocab),
          -1)
          << rows << " rows, " << kept << " kept: guesses";
      EXPECT_TRUE(same_state(*save(*model_, *sequence), *plain.snapshots[now]))
          << rows << " rows, " << kept << " kept";
      EXPECT_EQ(first_difference(read(*model_, *sequence, next), plain.rows(now, 3), vocab), -1)
          << rows << " rows, " << kept << " kept: later text";
    }
}

TEST_P(TrialOn, AStepOfSeveralSequencesGivesEachItsOwnNumbers) {
  const std::int32_t vocab = model_->vocab();
  const PlainRun a(*model_, random_ids(vocab, 90, 1)), b(*model_, random_ids(vocab, 90, 2)),
      c(*model_, random_ids(vocab, 90, 3));
  const auto one = model_->new_sequence(), two = model_->new_sequence(),
             three = model_->new_sequence();
  ASSERT_TRUE(model_->restore(*one, *a.snapshots[60]));
  ASSERT_TRUE(model_->restore(*two, *b.snapshots[7]));
  const StepPart parts[] = {
      {one.get(), std::span(a.ids).subspan(60, 9), 2, false},
      {two.get(), std::span(b.ids).subspan(7, 5), 5, true},
      {three.get(), std::span(c.ids).first(1), 0, false},
  };
  std::vector<float> logits(7 * static_cast<std::size_t>(vocab));
  ASSERT_TRUE(model_->forward(parts, logits));
  const auto split = std::span<const float>(logits).subspan(2 * static_cast<std::size_t>(vocab));
  EXPECT_EQ(
      first_difference(std::span<const float>(logits).first(2 * static_cast<std::size_t>(vocab)),
                       a.rows(67, 2), vocab),
      -1);
  EXPECT_EQ(first_difference(split, b.rows(7, 5), vocab), -1);
  model_->keep(*two, 4);
  EXPECT_EQ(two->length(), 11);
  // and guesses of all of them in one step
  const DraftPart drafts[] = {
      {one.get(), a.ids[69]}, {two.get(), b.ids[11]}, {three.get(), c.ids[1]}};
  std::vector<float> guessed(3 * static_cast<std::size_t>(vocab));
  ASSERT_TRUE(model_->draft(drafts, guessed));
  std::vector<float> singly;
  const auto alone = model_->new_sequence();
  for (const auto& [run, at] : {std::pair{&a, 69u}, {&b, 11u}, {&c, 1u}}) {
    ASSERT_TRUE(model_->restore(*alone, *run->snapshots[at]));
    const auto row = guess(*model_, *alone, std::span(run->ids).subspan(at, 1));
    singly.insert(singly.end(), row.begin(), row.end());
  }
  EXPECT_EQ(first_difference(guessed, singly, vocab), -1);
  const auto later = read(*model_, *one, std::span(a.ids).subspan(69, 8));
  EXPECT_EQ(first_difference(later, a.rows(69, 8), vocab), -1);
  EXPECT_EQ(
      first_difference(read(*model_, *two, std::span(b.ids).subspan(11, 8)), b.rows(11, 8), vocab),
      -1);
  EXPECT_EQ(
      first_difference(read(*model_, *three, std::span(c.ids).subspan(1, 8)), c.rows(1, 8), vocab),
      -1);
}

TEST_P(TrialOn, KeepsRowsInEveryKindOfCache) {
  for (const KvType kv : {KvType::f32, KvType::q8_0, KvType::r4}) {
    LoadOptions options = kOptions;
    options.kv = kv;
    setenv("PONDER_CPU", GetParam().c_str(), 1);
    const auto model = load_bytes(tiny_hybrid(), options);
    unsetenv("PONDER_CPU");
    const PlainRun plain(*model, random_ids(model->vocab(), 90));
    const auto sequence = model->new_sequence();
    for (std::size_t at = 0; at + 16 <= plain.ids.size();) {
      Ids ids(plain.ids.begin() + static_cast<std::ptrdiff_t>(at),
              plain.ids.begin() + static_cast<std::ptrdiff_t>(at + 9));
      const std::size_t kept = at % 7 + 1;
      for (std::size_t i = kept; i < ids.size(); ++i)
        ids[i] = (ids[i] + 1) % model->vocab();
      std::vector<float> logits(ids.size() * static_cast<std::size_t>(model->vocab()));
      const StepPart part{sequence.get(), ids, 9, true};
      ASSERT_TRUE(model->forward(std::span(&part, 1), logits));
      const auto right = std::span(logits).first(kept * static_cast<std::size_t>(model->vocab()));
      ASSERT_EQ(first_difference(right, plain.rows(at, kept), model->vocab()), -1)
          << static_cast<int>(kv) << ", " << at;
      model->keep(*sequence, static_cast<std::int64_t>(kept));
      at += kept;
    }
  }
}

TEST_P(TrialOn, ARefusedStepChangesNoSequence) {
  const std::int32_t vocab = model_->vocab();
  const PlainRun plain(*model_, random_ids(vocab, 20));
  const auto one = model_->new_sequence(), two = model_->new_sequence();
  ASSERT_TRUE(model_->restore(*one, *plain.snapshots[10]));
  const Ids bad = {0, vocab};
  const StepPart parts[] = {{one.get(), std::span(plain.ids).subspan(10, 3), 0, false},
                            {two.get(), bad, 0, false}};
  EXPECT_FALSE(model_->forward(parts, {}));
  EXPECT_EQ(one->length(), 10);
  EXPECT_EQ(two->length(), 0);
  EXPECT_TRUE(same_state(*save(*model_, *one), *plain.snapshots[10]));
  const Ids many(17, 1);
  const StepPart trial{one.get(), many, 0, true};
  EXPECT_FALSE(model_->forward(std::span(&trial, 1), {})) << "more rows than a trial may have";
}

}  // namespace
}  // namespace ponder::models::testing
