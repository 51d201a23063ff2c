#include "engine/run/decode_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/run/sampled_choice.h"
#include "tests/unit/generator/pebble.h"
#include "tests/unit/run/fake_model.h"

namespace ponder::run {
namespace {

using test::FakeModel;
using test::FakeOptions;
using Ids = std::vector<std::int32_t>;

const text::Tokenizer& tokenizer() {
  return *test::pebble_vocabulary().tokenizer;
}

sample::SamplerConfig config(float temperature, std::uint64_t seed) {
  sample::SamplerConfig c;
  c.temperature = temperature;
  c.seed = seed;
  c.presence_penalty = temperature > 0 ? 0.3F : 0.0F;
  return c;
}

/// The slow obvious way: one token, one pass.
Ids one_by_one(FakeModel& model, const Ids& prompt, const sample::SamplerConfig& c,
               std::int64_t most, bool ignore_end) {
  const auto sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  EXPECT_TRUE(model.forward(*sequence, prompt, 1, logits));
  Ids made;
  while (static_cast<std::int64_t>(made.size()) < most) {
    const auto known = std::span(logits).first(static_cast<std::size_t>(tokenizer().size()));
    const std::int32_t id =
        sample::sample(known, c, made, static_cast<std::int64_t>(prompt.size() + made.size()));
    if (!ignore_end && tokenizer().is_end(id)) break;
    made.push_back(id);
    EXPECT_TRUE(model.forward(*sequence, std::span(&id, 1), 1, logits));
  }
  return made;
}

struct Outcome {
  Ids made;
  Drafts drafts;
  std::int64_t length = 0;
  std::size_t ids = 0;
};
Outcome run(FakeModel& model, const Ids& prompt, const sample::SamplerConfig& c, std::int64_t most,
            bool ignore_end, int spec) {
  const auto sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  EXPECT_TRUE(read_prompt(model, *sequence, prompt, 100, logits));
  DecodeStep step(model, {}, [&] { return model.seconds; });
  SampledChoice choice(tokenizer(), c, static_cast<std::int64_t>(prompt.size()), most, ignore_end);
  Ids ids = prompt;
  const Result<Drafts> drafts = decode(model, step, *sequence, ids, choice, spec, logits);
  EXPECT_TRUE(drafts);
  return {choice.made(), drafts.value_or(Drafts{}), sequence->length(), ids.size()};
}

TEST(DecodeStep, DraftsNeverChangeTheText) {
  for (const double agrees : {0.0, 0.5, 0.9, 1.0}) {
    for (const float temperature : {0.0F, 1.5F}) {
      FakeOptions o;
      o.draft_agrees = agrees;
      FakeModel model(o);
      const Ids prompt{5, 6, 7, static_cast<std::int32_t>(100 * agrees)};
      const auto c = config(temperature, 42);
      const Ids want = one_by_one(model, prompt, c, 120, true);
      ASSERT_EQ(want.size(), 120u);
      for (int spec = kAdaptive; spec <= kDeepestDraft; ++spec) {
        const Outcome got = run(model, prompt, c, 120, true, spec);
        EXPECT_EQ(got.made, want) << agrees << " " << temperature << " " << spec;
        if (spec == 0) {
          EXPECT_EQ(got.drafts.drafted, 0);
        }
        if (spec > 0 && agrees == 1.0) {  // the same settings, seed and position: the same choice
          EXPECT_EQ(got.drafts.accepted, got.drafts.drafted);
        }
        if (spec > 0 && agrees == 0.0) {
          EXPECT_LT(got.drafts.accepted, got.drafts.drafted / 4);
        }
      }
    }
  }
}

TEST(DecodeStep, AnEndTokenEndsItThereWhateverWasDrafted) {
  int ended = 0;
  for (std::int32_t seed = 0; seed < 20; ++seed) {
    FakeOptions o;
    o.often = tokenizer().eos();
    FakeModel model(o);
    const Ids prompt{seed, 9};
    const sample::SamplerConfig c = config(1.5F, static_cast<std::uint64_t>(seed));
    const Ids want = one_by_one(model, prompt, c, 100, false);
    ended += want.size() < 100 ? 1 : 0;
    for (const int spec : {0, 1, 3, 5, kAdaptive}) {
      const Outcome got = run(model, prompt, c, 100, false, spec);
      ASSERT_EQ(got.made, want) << seed << " " << spec;
      ASSERT_LE(got.length, static_cast<std::int64_t>(got.ids));
      ASSERT_GE(got.length + 1, static_cast<std::int64_t>(prompt.size() + want.size()));
    }
  }
  EXPECT_GT(ended, 5);
}

TEST(DecodeStep, NeverReadsPastTheWindow) {
  FakeOptions o;
  o.n_ctx = 64;
  o.draft_agrees = 1;
  FakeModel model(o);  // checks it
  const Ids prompt{1, 2, 3, 4};
  for (int spec = 0; spec <= kDeepestDraft; ++spec)
    EXPECT_EQ(run(model, prompt, config(0, 1), 60, true, spec).made.size(), 60u);
}

TEST(DecodeStep, ALookupSavesStepsWhereTextRepeats) {
  FakeOptions o;
  o.drafts = false;
  FakeModel model(o);
  const auto sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  // Says the same thirty tokens again and again.
  class Cycle final : public Chooser {
   public:
    std::optional<std::int32_t> next(std::span<float>) override {
      if (ended()) return std::nullopt;
      return 100 + made++ % 30;
    }
    std::int32_t guess(std::span<float>, std::span<const std::int32_t>) const override { return 0; }
    bool ended() const override { return made >= 300; }
    bool is_end(std::int32_t) const override { return false; }
    std::int64_t room() const override { return 300 - made; }
    std::int32_t made = 0;
  } cycle;
  Ids ids{1};
  ASSERT_TRUE(model.forward(*sequence, ids, 1, logits));
  ids.push_back(*cycle.next(logits));
  Drafting drafting(kAdaptive, false);
  Decoding d;
  d.sequence = sequence.get();
  d.chooser = &cycle;
  d.ids = &ids;
  d.drafting = &drafting;
  DecodeStep step(model, {}, [&] { return model.seconds; });
  const std::int64_t before = model.steps;
  while (!cycle.ended()) {
    Decoding* one = &d;
    step.run(model, std::span(&one, 1), nullptr);
    ASSERT_FALSE(d.error);
  }
  for (std::size_t i = 1; i < ids.size(); ++i)
    EXPECT_EQ(ids[i], 100 + static_cast<std::int32_t>(i - 1) % 30);
  EXPECT_GT(d.accepted, 150);
  EXPECT_LT(model.steps - before, 150);
}

TEST(DecodeStep, OneWithoutMemoryFailsAloneAndTheOthersGoOn) {
  FakeOptions o;
  FakeModel model(o);
  struct One {
    std::unique_ptr<models::SequenceState> sequence;
    Ids ids;
    std::unique_ptr<SampledChoice> choice;
    Decoding decoding;
  };
  std::vector<One> all(3);
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  std::vector<Decoding*> decoding;
  for (std::size_t i = 0; i < all.size(); ++i) {
    One& one = all[i];
    one.ids = {static_cast<std::int32_t>(10 + i), 3};
    one.sequence = model.new_sequence();
    ASSERT_TRUE(model.forward(*one.sequence, one.ids, 1, logits));
    one.choice = std::make_unique<SampledChoice>(tokenizer(), config(0, 1), 2, 20, true);
    one.ids.push_back(*one.choice->next(logits));
    one.decoding.sequence = one.sequence.get();
    one.decoding.chooser = one.choice.get();
    one.decoding.ids = &one.ids;
    decoding.push_back(&one.decoding);
  }
  int freed = 0;
  DecodeStep step(model, [&] { return ++freed > 100; });
  model.options.no_memory_for = 11;
  step.run(model, decoding, nullptr);
  EXPECT_GT(freed, 0);
  EXPECT_FALSE(all[0].decoding.error);
  EXPECT_EQ(all[1].decoding.error->code, ErrorCode::out_of_memory);
  EXPECT_FALSE(all[2].decoding.error);
  EXPECT_EQ(all[1].choice->made().size(), 1u);
  model.options.no_memory_for = -1;
  for (const std::size_t i : {0u, 2u}) {
    EXPECT_EQ(all[i].choice->made(),
              one_by_one(model, {static_cast<std::int32_t>(10 + i), 3}, config(0, 1), 2, true));
  }
}

TEST(DecodeStep, MemoryThatIsFreedIsUsed) {
  FakeModel model;
  model.options.no_memory_for = 7;
  const auto sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  Ids first{7};
  model.options.no_memory_for = -1;
  ASSERT_TRUE(model.forward(*sequence, first, 1, logits));
  model.options.no_memory_for = 7;
  DecodeStep step(model, [&] {
    model.options.no_memory_for = -1;
    return true;
  });
  PromptSlice slice;
  const Ids more{1, 2, 3};
  slice.sequence = sequence.get();
  slice.ids = more;
  slice.wants_logits = true;
  step.run(model, {}, &slice);
  EXPECT_FALSE(slice.error);
  EXPECT_EQ(slice.logits.size(), static_cast<std::size_t>(model.vocab()));
  EXPECT_EQ(sequence->length(), 4);
}

}  // namespace
}  // namespace ponder::run
