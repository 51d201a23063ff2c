// Speculation tells the model's own tokens and their law: run::DecodeStep itself, which drafts,
// reads on trial and accepts, on a model of five tokens whose law is known; a million draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "engine/run/decode_step.h"
#include "engine/sample/sampler.h"
#include "tests/unit/sample/laws.h"

namespace ponder::run {
namespace {

using Row = std::vector<float>;

// The model's logits depend on the token before; the draft layer's are near them.
const std::vector<Row> kTarget{{1.0f, 0.2f, -0.5f, 0.7f, -2.0f},
                               {-1.0f, 2.0f, 0.0f, 0.5f, 0.1f},
                               {0.0f, 0.0f, 1.5f, -1.0f, 0.3f},
                               {0.4f, -0.6f, 0.9f, 1.1f, -0.2f},
                               {2.0f, 0.0f, 0.5f, 0.0f, -1.5f}};
const std::vector<Row> kDrafter{{0.8f, 0.5f, -0.7f, 0.3f, -1.0f},
                                {-0.5f, 1.2f, 0.4f, 0.5f, 0.6f},
                                {0.3f, -0.2f, 1.0f, -1.2f, 0.0f},
                                {0.1f, -0.1f, 0.5f, 1.4f, 0.2f},
                                {1.2f, 0.4f, 0.1f, 0.3f, -1.0f}};

struct ToySequence final : models::SequenceState {
  std::int64_t read = 0, on_trial = 0;
  std::int64_t length() const override { return read; }
  std::int64_t trial() const override { return on_trial; }
  void clear() override { read = on_trial = 0; }
};

class ToyModel final : public models::Model {
 public:
  std::int32_t vocab() const override { return 5; }
  std::int64_t n_ctx() const override { return 1 << 24; }
  std::int64_t n_ctx_train() const override { return n_ctx(); }
  std::int64_t chunk() const override { return 64; }
  int threads() const override { return 1; }
  std::uint64_t weight_bytes() const override { return 1; }
  std::string device() const override { return "toy"; }
  bool drafts() const override { return true; }
  std::uint64_t page_bytes() const override { return 1; }
  std::uint64_t sequence_bytes() const override { return 1; }

  std::unique_ptr<models::SequenceState> new_sequence() const override {
    return std::make_unique<ToySequence>();
  }
  Result<void> forward(std::span<const models::StepPart> parts, std::span<float> logits) override {
    for (const models::StepPart& part : parts) {
      auto& sequence = static_cast<ToySequence&>(*part.sequence);
      const auto n = static_cast<std::int64_t>(part.ids.size());
      (part.trial ? sequence.on_trial : sequence.read) += n;
      for (const std::int32_t id : part.ids.last(static_cast<std::size_t>(part.logit_rows)))
        logits = write(kTarget, id, logits);
    }
    return {};
  }
  void keep(models::SequenceState& sequence, std::int64_t rows) override {
    auto& toy = static_cast<ToySequence&>(sequence);
    toy.read += rows;
    toy.on_trial = 0;
  }
  Result<void> draft(std::span<const models::DraftPart> parts, std::span<float> logits) override {
    for (const models::DraftPart& part : parts)
      logits = write(kDrafter, part.id, logits);
    return {};
  }
  using Saved = std::shared_ptr<const models::Snapshot>;
  Result<Saved> save(models::SequenceState&) override { return Saved(); }
  Result<Saved> to_host(const models::Snapshot&) override { return Saved(); }
  Result<void> restore(models::SequenceState&, const models::Snapshot&) override { return {}; }

 private:
  static std::span<float> write(const std::vector<Row>& table, std::int32_t id,
                                std::span<float> logits) {
    const Row& row = table[static_cast<std::size_t>(id)];
    std::copy(row.begin(), row.end(), logits.begin());
    return logits.subspan(row.size());
  }
};

/// What an output stream does, without its text: the real choice and the drafted one by the same
/// settings, seed and position.
class Choice : public Chooser {
 public:
  explicit Choice(std::int64_t most) : most_(most) {}

  std::optional<std::int32_t> next(std::span<float> logits) override {
    if (ended()) return std::nullopt;
    const std::int32_t id = choose(logits);
    ++counts[static_cast<std::size_t>(last_)][static_cast<std::size_t>(id)];
    last_ = id;
    ++made_;
    return id;
  }
  std::int32_t guess(std::span<float> logits, std::span<const std::int32_t> drafts) const override {
    return at(logits, made_ + static_cast<std::int64_t>(drafts.size()));
  }
  bool ended() const override { return made_ >= most_; }
  bool is_end(std::int32_t) const override { return false; }
  std::int64_t room() const override { return most_ - made_; }

  /// Of each token, by the one before it.
  std::vector<std::vector<std::int64_t>> counts =
      std::vector<std::vector<std::int64_t>>(5, std::vector<std::int64_t>(5));

 protected:
  virtual std::int32_t choose(std::span<float> logits) { return at(logits, made_); }
  std::int32_t at(std::span<float> logits, std::int64_t position) const {
    return sample::sample(logits, config_, {}, position);
  }
  std::int64_t made_ = 0;

 private:
  const sample::SamplerConfig config_ = test::plain(77);
  const std::int64_t most_;
  std::int32_t last_ = 0;
};

/// A planted fault: a draft that the model finds likely enough is taken for its choice.
class LenientChoice final : public Choice {
 public:
  using Choice::Choice;
  std::int32_t guess(std::span<float> logits, std::span<const std::int32_t> drafts) const override {
    const std::int32_t id = Choice::guess(logits, drafts);
    drafted_.resize(drafts.size());
    drafted_.push_back(id);
    from_ = made_;
    return id;
  }

 private:
  std::int32_t choose(std::span<float> logits) override {
    const std::vector<double> law = test::softmax({logits.begin(), logits.end()});
    const auto i = static_cast<std::size_t>(made_ - from_);
    if (i < drafted_.size() && law[static_cast<std::size_t>(drafted_[i])] > 0.15)
      return drafted_[i];
    return Choice::choose(logits);
  }
  mutable std::vector<std::int32_t> drafted_;
  mutable std::int64_t from_ = 0;
};

struct Told {
  std::vector<std::int32_t> tokens;
  std::int64_t drafted = 0, accepted = 0;
};

Told decode(Choice& choice, int spec) {
  ToyModel model;
  const auto sequence = model.new_sequence();
  DecodeStep step(model);
  Drafting drafting(spec, true);
  Told told{{0}};
  Decoding decoding;
  decoding.sequence = sequence.get();
  decoding.chooser = &choice;
  decoding.ids = &told.tokens;
  decoding.drafting = &drafting;
  Decoding* const all[] = {&decoding};
  while (!choice.ended()) {
    step.run(model, all, nullptr);
    if (decoding.error) break;
  }
  EXPECT_FALSE(decoding.error);
  told.drafted = decoding.drafted;
  told.accepted = decoding.accepted;
  return told;
}

/// The least agreement of all rows.
double agreement(const Choice& choice) {
  double worst = 1;
  for (std::size_t i = 0; i < kTarget.size(); ++i)
    worst = std::min(worst, test::agreement(choice.counts[i], test::softmax(kTarget[i])));
  return worst;
}

constexpr std::int64_t kDraws = 1'000'000;

TEST(SpeculationLaw, AMillionAcceptedAndReplacedTokensFollowTheModelsLaw) {
  Choice choice(kDraws);
  const Told told = decode(choice, 3);
  EXPECT_GT(agreement(choice), 0.001);
  // Two draws of their own would agree at one place in four, so at 0.11 of three in a row.
  EXPECT_GT(static_cast<double>(told.accepted), 0.3 * static_cast<double>(told.drafted));
  EXPECT_GT(told.drafted, kDraws);
}

TEST(SpeculationLaw, IsTheSameTextAtEveryDepth) {
  Choice plain(5000);
  const Told alone = decode(plain, 0);
  EXPECT_EQ(alone.drafted, 0);
  for (const int spec : {1, 2, 3, 4, 5, kAdaptive}) {
    Choice choice(5000);
    EXPECT_EQ(decode(choice, spec).tokens, alone.tokens) << spec;
  }
}

TEST(SpeculationLaw, TheTestNoticesARuleThatAcceptsTooMuch) {
  LenientChoice choice(kDraws);
  const Told told = decode(choice, 3);
  EXPECT_GT(told.accepted, 0);
  EXPECT_LT(agreement(choice), 1e-9);
}

}  // namespace
}  // namespace ponder::run
