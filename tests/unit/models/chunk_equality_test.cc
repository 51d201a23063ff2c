// A row's numbers are the same bits in whatever chunk and with however many threads it is computed,
// on real conversations and on ordinary English, and so are the tokens chosen from them: those of
// all twenty conversations with PONDER_SOAK=1, as scripts/soak runs it, else of some, since each
// costs 1,800 single steps (2 s of CPU time).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "engine/sample/sampler.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

constexpr std::int64_t kChunks[] = {1, 7, 64, 512};

LoadOptions options(int threads, KvType kv = KvType::f16) {
  return {.n_ctx = 4096, .threads = threads, .kv = kv, .chunk = 512};
}

class ChunkEquality : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    one_ = load(pebble(GetParam()), options(1));
    two_ = load(pebble(GetParam()), options(2));
  }
  /// Each chunk size with each thread count against all at once with two threads.
  void expect_equal(const Ids& ids, const std::string& name) {
    const std::vector<float> expected = run(*two_, ids, 512);
    for (const std::int64_t chunk : kChunks) {
      for (Model* model : {one_.get(), two_.get()}) {
        if (model == two_.get() && chunk == 512) continue;
        EXPECT_EQ(first_difference(expected, run(*model, ids, chunk), model->vocab()), -1)
            << name << ", chunk " << chunk << ", threads " << model->threads();
      }
    }
  }
  std::unique_ptr<Model> one_, two_;
};

TEST_P(ChunkEquality, OfTwentyConversations) {
  const std::vector<Conversation> talks = conversations();
  for (std::size_t i = 0; i < 20; ++i)
    expect_equal(talks[i * 3].ids, talks[i * 3].name);
}

TEST_P(ChunkEquality, OfTwoThousandTokensOfEnglish) {
  const Ids ids = english();
  ASSERT_EQ(ids.size(), 2000u);
  expect_equal(ids, "english");
}

/// `n` tokens after the prompt, with no regard for end tokens.
Ids generate(Model& model, const Ids& prompt, std::int64_t chunk, float temperature, int n) {
  const auto sequence = model.new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  for (std::size_t at = 0; at < prompt.size(); at += static_cast<std::size_t>(chunk)) {
    const auto part = std::span(prompt).subspan(
        at, std::min(static_cast<std::size_t>(chunk), prompt.size() - at));
    const bool last = at + part.size() == prompt.size();
    EXPECT_TRUE(
        model.forward(*sequence, part, last, last ? std::span<float>(logits) : std::span<float>()));
  }
  sample::SamplerConfig config;
  config.temperature = temperature;
  config.top_k = 0;
  config.top_p = 1.0f;
  config.seed = 77;
  Ids out;
  while (static_cast<int>(out.size()) < n) {
    out.push_back(sample::sample(logits, config, out, sequence->length()));
    EXPECT_TRUE(model.forward(*sequence, std::span(out).last(1), 1, logits));
  }
  return out;
}

std::size_t generated_talks(const std::string& file) {
  const char* full = std::getenv("PONDER_SOAK");
  if (full && *full == '1') return 20;
  return file == "pebble-q8_0" ? 8 : 4;
}

TEST_P(ChunkEquality, OfTwoHundredGeneratedTokens) {
  const std::vector<Conversation> talks = conversations();
  const std::size_t n = generated_talks(GetParam());
  for (std::size_t i = 0; i < n; ++i) {
    const Conversation& talk = talks[i * (60 / n)];
    const Ids prompt(talk.ids.begin(), talk.ids.begin() + static_cast<std::ptrdiff_t>(talk.prompt));
    const float temperature = i % 2 == 0 ? 0.0f : 1.5f;
    const Ids expected = generate(*two_, prompt, 512, temperature, 200);
    for (const std::int64_t chunk : kChunks)
      for (Model* model : {one_.get(), two_.get()})
        EXPECT_EQ(generate(*model, prompt, chunk, temperature, 200), expected)
            << talk.name << ", chunk " << chunk << ", threads " << model->threads();
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ChunkEquality, ::testing::Values("pebble-q8_0", "pebble-q4_k_m"),
                         [](const auto& p) { return std::string(p.param).substr(7); });

TEST(ChunkEqualityCatches, AForgottenState) {
  // a sequence that starts again at token 64, as a chunk would that lost its recurrent state
  const auto model = load(pebble("pebble-q8_0"), options(2));
  Ids ids = english();
  ids.resize(100);
  const std::vector<float> expected = run(*model, ids, 512);
  std::vector<float> broken(expected.size());
  const auto sequence = model->new_sequence();
  const auto vocab = static_cast<std::size_t>(model->vocab());
  run(*model, *sequence, std::span(ids).first(64), 64, std::span(broken).first(64 * vocab));
  sequence->clear();
  run(*model, *sequence, std::span(ids).subspan(64), 64, std::span(broken).subspan(64 * vocab));
  EXPECT_EQ(first_difference(expected, broken, model->vocab()), 64);
}

TEST(ChunkEqualityCatches, TheLastBitOfACache) {
  const auto f16 = load(pebble("pebble-q8_0"), options(2));
  const auto f32 = load(pebble("pebble-q8_0"), options(2, KvType::f32));
  Ids ids = english();
  ids.resize(40);
  EXPECT_GE(first_difference(run(*f16, ids, 512), run(*f32, ids, 512), f16->vocab()), 0);
}

}  // namespace
}  // namespace ponder::models::testing
