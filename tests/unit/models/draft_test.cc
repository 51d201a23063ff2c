// The multi-token-prediction layer: against the slow reference, independent of the way to a
// position, without a trace in what follows, and of use on the bundled model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "tests/support/memory_file.h"
#include "tests/support/reference_decoder.h"
#include "tests/unit/models/state_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::MemoryFile;
using ponder::testing::tiny_qwen35;

LoadOptions options(std::int64_t chunk, KvType kv = KvType::f32) {
  return {.n_ctx = 256, .threads = 2, .kv = kv, .chunk = chunk, .drafts = true};
}

std::int32_t best(std::span<const float> logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

TEST(Draft, AgreesWithTheSlowReference) {
  const ponder::testing::TinyQwen35 shapes[] = {
      {.layers = 4, .interval = 2, .tied = false, .vocab = 131},
      {.layers = 4, .interval = 2, .tied = true, .vocab = 131},
      {.layers = 4, .interval = 2, .vocab = 131, .mixture = {8, 3, 32, 48}},
  };
  for (const auto& shape : shapes) {
    const MemoryFile file(tiny_qwen35(shape).bytes());
    const auto gguf = artifact::Gguf::open(file.path());
    ASSERT_TRUE(gguf);
    const auto model = load(file.path(), options(64));
    ASSERT_TRUE(model->drafts());
    const Ids ids = random_ids(model->vocab(), 70), next = random_ids(model->vocab(), 4, 8);
    const auto sequence = model->new_sequence();
    read(*model, *sequence, ids);
    const std::vector<float> logits = guess(*model, *sequence, next);
    const std::vector<double> expected = ponder::testing::reference_guesses(**gguf, ids, next);
    ASSERT_EQ(logits.size(), expected.size());
    double worst = 0, largest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      worst = std::max(worst, std::fabs(static_cast<double>(logits[i]) - expected[i]));
      largest = std::max(largest, std::fabs(expected[i]));
    }
    EXPECT_LT(worst / largest, 1e-4);
  }
}

TEST(Draft, DoesNotDependOnTheWayToAPosition) {
  const auto model = load_bytes(tiny_hybrid(), options(64, KvType::f16));
  const auto small = load_bytes(tiny_hybrid(), options(16, KvType::f16));
  const Ids ids = random_ids(model->vocab(), 150), next = random_ids(model->vocab(), 4, 8);
  const auto sequence = model->new_sequence();
  read(*model, *sequence, ids);
  const std::vector<float> expected = guess(*model, *sequence, next);
  for (Model* m : {model.get(), small.get()})
    for (const std::int64_t chunk : {1, 5, 16}) {
      const auto other = m->new_sequence();
      std::vector<float> logits(ids.size() * static_cast<std::size_t>(m->vocab()));
      run(*m, *other, ids, chunk, logits);
      EXPECT_EQ(first_difference(guess(*m, *other, next), expected, m->vocab()), -1)
          << m->chunk() << ", " << chunk;
    }
  // guesses, trials and restores on the way
  for (const std::size_t stride : {3u, 16u}) {
    auto other = small->new_sequence();
    for (std::size_t at = 0; at < ids.size();) {
      const std::size_t n = std::min(stride, ids.size() - at);
      const StepPart part{other.get(), std::span(ids).subspan(at, n), 0, true};
      ASSERT_TRUE(small->forward(std::span(&part, 1), {}));
      const std::size_t kept = std::min(n, at % (stride + 1) + 1);
      small->keep(*other, static_cast<std::int64_t>(kept));
      at += kept;
      guess(*small, *other, std::span(next).first(1 + at % 4));
      if (at % 2 == 0) {
        auto moved = small->new_sequence();
        ASSERT_TRUE(small->restore(*moved, *save(*small, *other)));
        other = std::move(moved);
      }
    }
    EXPECT_EQ(first_difference(guess(*small, *other, next), expected, small->vocab()), -1);
  }
}

TEST(Draft, LeavesNoTraceInWhatFollows) {
  const auto model = load_bytes(tiny_hybrid(), options(64, KvType::f16));
  const Ids ids = random_ids(model->vocab(), 150);
  const auto plain = model->new_sequence(), guessing = model->new_sequence();
  const std::vector<float> expected = read(*model, *plain, ids);
  std::vector<float> logits;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    const auto row = read(*model, *guessing, std::span(ids).subspan(at, 1));
    logits.insert(logits.end(), row.begin(), row.end());
    guess(*model, *guessing, random_ids(model->vocab(), 1 + static_cast<int>(at % 3), 4));
    EXPECT_EQ(guessing->length(), static_cast<std::int64_t>(at + 1));
  }
  EXPECT_EQ(first_difference(logits, expected, model->vocab()), -1);
}

TEST(Draft, StopsAtTheEndOfTheContextAndNeedsAToken) {
  const auto model =
      load_bytes(tiny_hybrid(), {.n_ctx = 16, .threads = 1, .chunk = 16, .drafts = true});
  const auto sequence = model->new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model->vocab()));
  const DraftPart part{sequence.get(), 1};
  EXPECT_FALSE(model->draft(std::span(&part, 1), logits)) << "nothing read";
  read(*model, *sequence, random_ids(model->vocab(), 16));
  EXPECT_TRUE(model->draft(std::span(&part, 1), logits));
  const auto full = model->draft(std::span(&part, 1), logits);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::context_length_exceeded);
}

TEST(Draft, IsThereOnlyWhereTheFileHoldsTheLayer) {
  const auto without = tiny_qwen35({.layers = 2, .interval = 2, .nextn = 0, .vocab = 50}).bytes();
  EXPECT_FALSE(load_bytes(without, options(16))->drafts());
  const auto absent =
      tiny_qwen35({.layers = 2, .interval = 2, .write_nextn = false, .vocab = 50}).bytes();
  EXPECT_FALSE(load_bytes(absent, options(16))->drafts());
}

struct Guesses {
  int tried = 0, accepted = 0;
  double share() const { return static_cast<double>(accepted) / tried; }
};

/// A new sequence; `kept`, where there is one, is what it goes on from.
std::unique_ptr<SequenceState> begin(Model& model, const Snapshot* kept) {
  auto sequence = model.new_sequence();
  if (kept) {
    EXPECT_TRUE(model.restore(*sequence, *kept));
  }
  return sequence;
}

/// Greedy text after `prompt`, guessed `depth` tokens ahead; counts the guesses. The beginning of
/// the prompt that `kept` holds is not read.
Ids speculate(Model& model, std::span<const std::int32_t> prompt, const Snapshot* kept, int depth,
              std::size_t n, Guesses& guesses) {
  const auto vocab = static_cast<std::size_t>(model.vocab());
  const auto sequence = begin(model, kept);
  const auto first =
      read(model, *sequence, prompt.subspan(static_cast<std::size_t>(sequence->length())));
  Ids out = {best(std::span(first).last(vocab))};
  std::vector<float> row(vocab), rows(static_cast<std::size_t>(depth + 1) * vocab);
  while (out.size() < n) {
    Ids ids = {out.back()};
    for (int i = 0; i < depth; ++i) {
      const DraftPart part{sequence.get(), ids.back()};
      EXPECT_TRUE(model.draft(std::span(&part, 1), row));
      ids.push_back(best(row));
    }
    const StepPart part{sequence.get(), ids, depth + 1, true};
    EXPECT_TRUE(model.forward(std::span(&part, 1), rows));
    std::size_t right = 1;
    for (;; ++right) {
      out.push_back(best(std::span(rows).subspan((right - 1) * vocab, vocab)));
      if (right == ids.size() || ids[right] != out.back()) break;
    }
    model.keep(*sequence, static_cast<std::int64_t>(right));
    guesses.tried += depth;
    guesses.accepted += static_cast<int>(right) - 1;
  }
  out.resize(n);
  return out;
}

/// Cold and then warm: the second time the prompt is not read, but restored.
TEST(Draft, GuessesMostOfTheBundledModelsText) {
  const auto model =
      load(pebble("pebble-q8_0"), {.n_ctx = 4096, .threads = 2, .chunk = 512, .drafts = true});
  ASSERT_TRUE(model->drafts());
  Guesses cold, warm, none;
  const std::vector<Conversation> talks = conversations();
  for (std::size_t i = 0; i < talks.size(); i += 6) {
    const auto prompt = std::span(talks[i].ids).first(talks[i].prompt);
    const Ids expected = speculate(*model, prompt, nullptr, 0, 60, none);
    EXPECT_EQ(speculate(*model, prompt, nullptr, 3, 60, cold), expected) << talks[i].name;

    const auto reader = model->new_sequence();
    read(*model, *reader, prompt.first(prompt.size() - 1 - i % prompt.size() / 2));
    std::shared_ptr<const Snapshot> kept = save(*model, *reader);
    if (i % 4 == 0) kept = model->to_host(*kept).value();
    EXPECT_EQ(speculate(*model, prompt, kept.get(), 3, 60, warm), expected) << talks[i].name;
  }
  std::printf("accepted at depth 3: cold %d of %d, warm %d of %d\n", cold.accepted, cold.tried,
              warm.accepted, warm.tried);
  EXPECT_GE(cold.share(), 0.85);
  EXPECT_GE(warm.share(), 0.85);
  EXPECT_NEAR(warm.share(), cold.share(), 0.02);
}

}  // namespace
}  // namespace ponder::models::testing
