// Small random models: against the slow reference, on shapes the bundled model does not have; what
// a load refuses and accepts; what a step costs in memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/models/registry.h"
#include "kernels/core/arena.h"
#include "tests/support/allocations.h"
#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"
#include "tests/support/reference_decoder.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::GgufWriter;
using ponder::testing::MemoryFile;
using ponder::testing::tiny_qwen35;
using ponder::testing::TinyQwen35;

constexpr LoadOptions kOptions = {.n_ctx = 256, .threads = 2, .kv = KvType::f32, .chunk = 64};

Ids some_ids(std::int32_t vocab, int n) {
  Ids out;
  std::uint32_t x = 12345;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525 + 1013904223;
    out.push_back(static_cast<std::int32_t>((x >> 8) % static_cast<std::uint32_t>(vocab)));
  }
  return out;
}

double worst_relative(std::span<const float> logits, std::span<const double> reference) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(logits[i]) - reference[i]);
    if (!(difference <= worst)) worst = difference;
    largest = std::max(largest, std::fabs(reference[i]));
  }
  return worst / largest;
}

double rms_relative(std::span<const float> logits, std::span<const double> reference) {
  double error = 0, size = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(logits[i]) - reference[i];
    error += difference * difference;
    size += reference[i] * reference[i];
  }
  return std::sqrt(error / size);
}

struct Shape {
  const char* name;
  TinyQwen35 shape;
};

const Shape kShapes[] = {
    {"SixValueHeadsOnTwo", {}},
    {"TiedWithAsManyKeyHeads",
     {.tied = true,
      .ffn = 256,
      .vocab = 512,
      .heads = 4,
      .kv_heads = 2,
      .k_heads = 2,
      .v_heads = 2,
      .seed = 2}},
    {"RealHeadSizes",
     {.layers = 4,
      .hidden = 256,
      .ffn = 512,
      .vocab = 515,
      .heads = 6,
      .kv_heads = 1,
      .head_dim = 256,
      .rot = 64,
      .k_heads = 1,
      .v_heads = 3,
      .dk = 128,
      .seed = 3}},
    {"EveryLayerAttends", {.layers = 2, .interval = 1, .nextn = 0, .vocab = 100, .seed = 4}},
    {"NoLayerAttends", {.layers = 3, .interval = 4, .nextn = 0, .vocab = 100, .seed = 5}},
    {"SixteenKvHeads",
     {.layers = 2,
      .interval = 2,
      .nextn = 0,
      .hidden = 96,
      .ffn = 40,
      .vocab = 33,
      .heads = 16,
      .kv_heads = 16,
      .head_dim = 16,
      .rot = 4,
      .k_heads = 3,
      .v_heads = 12,
      .dk = 16,
      .seed = 6}},
};

class TinyModel : public ::testing::TestWithParam<Shape> {};

TEST_P(TinyModel, AgreesWithTheSlowReference) {
  const MemoryFile file(tiny_qwen35(GetParam().shape).bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  const auto model = load(file.path(), kOptions);
  const Ids ids = some_ids(model->vocab(), 70);
  const std::vector<double> expected = ponder::testing::reference_logits(**gguf, ids);
  const std::vector<float> logits = run(*model, ids, 64);
  EXPECT_LT(worst_relative(logits, expected), 1e-4);
  for (const std::int64_t chunk : {1, 3, 33})
    EXPECT_EQ(first_difference(logits, run(*model, ids, chunk), model->vocab()), -1) << chunk;
}

INSTANTIATE_TEST_SUITE_P(Shapes, TinyModel, ::testing::ValuesIn(kShapes),
                         [](const auto& p) { return std::string(p.param.name); });

/// Widths that every format's block divides.
TinyQwen35 wide(kernels::DType type, std::uint32_t layers) {
  return {.layers = layers,
          .interval = 2,
          .nextn = 0,
          .hidden = 256,
          .ffn = 512,
          .vocab = 515,
          .heads = 4,
          .kv_heads = 1,
          .head_dim = 64,
          .k_heads = 2,
          .v_heads = 8,
          .dk = 32,
          .matrices = type};
}

class TinyModelTypes : public ::testing::TestWithParam<kernels::FormatInfo> {};

TEST_P(TinyModelTypes, AgreesWithTheSlowReference) {
  const kernels::FormatInfo& format = GetParam();
  // Products of quantised weights quantise the activations too, and random layers multiply that
  // error: two layers, one of each kind, come to 0.03 in every format.
  const bool exact = format.block_elements == 1;
  const MemoryFile file(tiny_qwen35(wide(format.type, exact ? 8 : 2)).bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ((*gguf)->find("blk.0.ffn_up.weight")->type, format.type);
  const auto model = load(file.path(), kOptions);
  const Ids ids = some_ids(model->vocab(), 40);
  EXPECT_LT(rms_relative(run(*model, ids, 64), ponder::testing::reference_logits(**gguf, ids)),
            exact ? 1e-5 : 0.05);
}

INSTANTIATE_TEST_SUITE_P(Each, TinyModelTypes, ::testing::ValuesIn(kernels::kFormats),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(TinyModelRuns, GivesOnlyTheLogitsAskedFor) {
  const auto model = load_bytes(tiny_qwen35({}).bytes(), kOptions);
  const Ids ids = some_ids(model->vocab(), 20);
  const auto vocab = static_cast<std::size_t>(model->vocab());
  const std::vector<float> all = run(*model, ids, 64);
  const auto sequence = model->new_sequence();
  std::vector<float> last(3 * vocab);
  ASSERT_TRUE(model->forward(*sequence, std::span(ids).first(12), 0, {}));
  ASSERT_TRUE(model->forward(*sequence, std::span(ids).subspan(12), 3, last));
  EXPECT_EQ(sequence->length(), 20);
  EXPECT_EQ(first_difference(std::span(all).last(3 * vocab), last, model->vocab()), -1);
}

TEST(TinyModelRuns, AClearedSequenceStartsAgain) {
  const auto model = load_bytes(tiny_qwen35({}).bytes(), kOptions);
  const Ids ids = some_ids(model->vocab(), 80);
  const auto sequence = model->new_sequence();
  std::vector<float> first(ids.size() * static_cast<std::size_t>(model->vocab())),
      second(first.size());
  run(*model, *sequence, ids, 64, first);
  sequence->clear();
  EXPECT_EQ(sequence->length(), 0);
  run(*model, *sequence, ids, 64, second);
  EXPECT_EQ(first_difference(first, second, model->vocab()), -1);
}

TEST(TinyModelRuns, SequencesDoNotDisturbEachOther) {
  const auto model = load_bytes(tiny_qwen35({}).bytes(), kOptions);
  const Ids a = some_ids(model->vocab(), 30), b = some_ids(model->vocab() - 1, 30);
  const auto vocab = static_cast<std::size_t>(model->vocab());
  const std::vector<float> expected = run(*model, a, 1);
  const auto one = model->new_sequence(), two = model->new_sequence();
  std::vector<float> mixed(expected.size()), other(vocab);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_TRUE(model->forward(*one, std::span(a).subspan(i, 1), 1,
                               std::span(mixed).subspan(i * vocab, vocab)));
    ASSERT_TRUE(model->forward(*two, std::span(b).subspan(i, 1), 1, other));
  }
  EXPECT_EQ(first_difference(expected, mixed, model->vocab()), -1);
}

TEST(TinyModelRuns, DecodingAllocatesOnlyPages) {
  const auto model = load_bytes(tiny_qwen35({}).bytes(), kOptions);
  const auto sequence = model->new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model->vocab()));
  const Ids ids = some_ids(model->vocab(), 200);
  ASSERT_TRUE(model->forward(*sequence, std::span(ids).first(1), 1, logits));
  const std::int64_t before = ponder::testing::allocation_count();
  for (std::size_t i = 1; i < ids.size(); ++i)  // three pages of 64 positions more
    if (!model->forward(*sequence, std::span(ids).subspan(i, 1), 1, logits)) FAIL();
  EXPECT_EQ(ponder::testing::allocation_count() - before, 3);
}

TEST(TinyModelRuns, RefusesWhatDoesNotFit) {
  const auto model = load_bytes(tiny_qwen35({}).bytes(), {.n_ctx = 40, .threads = 1, .chunk = 32});
  const auto sequence = model->new_sequence();
  std::vector<float> logits(static_cast<std::size_t>(model->vocab()));
  const Ids ids = some_ids(model->vocab(), 60);
  EXPECT_FALSE(model->forward(*sequence, std::span(ids).first(33), 1, logits))
      << "more than a chunk";
  EXPECT_FALSE(model->forward(*sequence, {}, 0, {}));
  EXPECT_FALSE(model->forward(*sequence, std::span(ids).first(2), 1, {}))
      << "no room for the logits";
  ASSERT_TRUE(model->forward(*sequence, std::span(ids).first(32), 1, logits));
  const auto full = model->forward(*sequence, std::span(ids).first(9), 1, logits);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, ErrorCode::context_length_exceeded);
  for (const std::int32_t id : {-1, 1009, 1 << 30}) {
    const Ids bad = {id};
    const auto refused = model->forward(*sequence, bad, 1, logits);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::bad_request);
  }
  EXPECT_EQ(sequence->length(), 32) << "a refused step leaves the sequence as it was";
}

/// The message that refuses `writer`'s file, or "".
std::string refusal(const GgufWriter& writer, LoadOptions options = kOptions) {
  const MemoryFile file(writer.bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  if (!gguf) return gguf.error().message;
  const auto model = Model::load(**gguf, options);
  const bool sound = memory_need(**gguf, options).has_value();
  EXPECT_EQ(model.has_value(), sound);
  if (options.n_ctx == kOptions.n_ctx) {
    EXPECT_EQ(unsupported(**gguf).empty(), sound);
  }
  return model ? "" : model.error().message;
}

GgufWriter without(TinyQwen35 shape, std::string_view name) {
  GgufWriter w = tiny_qwen35(shape);
  std::erase_if(w.tensors, [&](const auto& t) { return t.name == name; });
  return w;
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

TEST(TinyModelLoads, SaysWhichArchitecturesItComputes) {
  GgufWriter w;
  w.add_string("general.architecture", "gemma4");
  EXPECT_SAYS(refusal(w), "gemma4 is not supported; this build computes: qwen35");
  EXPECT_SAYS(refusal(GgufWriter()), "does not say which architecture");
}

TEST(TinyModelLoads, NamesMissingAndMisshapenTensors) {
  EXPECT_SAYS(refusal(without({}, "blk.3.attn_k.weight")), "blk.3.attn_k.weight is missing");
  EXPECT_SAYS(refusal(without({}, "blk.0.ssm_a")), "blk.0.ssm_a is missing");
  GgufWriter w = tiny_qwen35({});
  for (auto& t : w.tensors)
    if (t.name == "blk.1.ffn_up.weight") std::swap(t.extents[0], t.extents[1]);
  EXPECT_SAYS(refusal(w), "blk.1.ffn_up.weight has the shape [352, 128] instead of [128, 352]");
}

TEST(TinyModelScales, ASecondScaleMultipliesItsMatrix) {
  // A scale of 1/2 is exact, and of the output matrix it is one of the logits.
  GgufWriter plain = tiny_qwen35(wide(kernels::DType::NVFP4, 2)), scaled = plain;
  scaled.tensors.push_back({"output.scale", {1}, 0, ponder::testing::raw(0.5f)});
  scaled.tensors.push_back({"output.input_scale", {1}, 0, ponder::testing::raw(3.0f)});
  const auto a = load_bytes(plain.bytes(), kOptions), b = load_bytes(scaled.bytes(), kOptions);
  const Ids ids = some_ids(a->vocab(), 9);
  std::vector<float> expected = run(*a, ids, 64);
  for (float& x : expected)
    x *= 0.5f;
  EXPECT_EQ(expected, run(*b, ids, 64));

  scaled.tensors[scaled.tensors.size() - 2].extents = {2};
  scaled.tensors[scaled.tensors.size() - 2].data += ponder::testing::raw(0.5f);
  EXPECT_SAYS(refusal(scaled), "output.scale must be one F32 number for each matrix");
}

TEST(TinyModelLoads, NamesATypeItCannotCompute) {
  GgufWriter w = tiny_qwen35({.hidden = 256});
  for (auto& t : w.tensors)
    if (t.name.ends_with("ffn_gate.weight")) {
      t.type = 16;
      t.data.resize(static_cast<std::size_t>(t.extents[0] * t.extents[1] / 256 * 66));
    }
  EXPECT_SAYS(
      refusal(w),
      "blk.0.ffn_gate.weight has type IQ2_XXS, which this build cannot compute; use a file of "
      "another type, for example Q4_K_M");
}

TEST(TinyModelLoads, AcceptsAMultiTokenLayerThatIsThereOrWhollyAbsent) {
  EXPECT_EQ(refusal(tiny_qwen35({.nextn = 1})), "");
  EXPECT_EQ(refusal(tiny_qwen35({.nextn = 0})), "");
  EXPECT_EQ(refusal(tiny_qwen35({.nextn = 1, .write_nextn = false})), "");
  EXPECT_SAYS(refusal(without({}, "blk.8.nextn.eh_proj.weight")),
              "blk.8.nextn.eh_proj.weight is missing");
}

TEST(TinyModelLoads, AcceptsTheOtherNameOfTheTimeStepBias) {
  GgufWriter w = tiny_qwen35({});
  for (auto& t : w.tensors)
    if (t.name.ends_with("ssm_dt.bias")) t.name.resize(t.name.size() - 5);
  EXPECT_EQ(refusal(w), "");
}

TEST(TinyModelLoads, AcceptsHeadCountsListedLayerByLayer) {
  TinyQwen35 shape = {.layers = 4, .nextn = 0};
  shape.kv_heads_by_layer = {0, 0, 0, 1};
  EXPECT_EQ(refusal(tiny_qwen35(shape)), "");
  shape.kv_heads_by_layer = {0, 2, 0, 1};
  EXPECT_SAYS(refusal(tiny_qwen35(shape)), "differs from layer to layer");
  shape.kv_heads_by_layer = {0, 0, 0, 0};
  EXPECT_SAYS(refusal(tiny_qwen35(shape)), "head_count_kv is 0");
}

TEST(TinyModelLoads, RefusesInconsistentNumbers) {
  struct Case {
    TinyQwen35 shape;
    const char* says;
  };
  const Case cases[] = {
      {{.heads = 5, .kv_heads = 2}, "5 attention heads cannot share 2 KV heads"},
      {{.k_heads = 4, .v_heads = 6}, "6 value heads cannot share 4 key heads"},
      {{.rot = 15}, "must be even"},
      {{.rot = 80}, "rope.dimension_count is 80, which is not between 2 and 64"},
      {{.interval = 0}, "full_attention_interval is 0"},
      {{.head_dim = 40}, "same multiple of 16"},
      {{.dk = 24}, "state_size is 24; it must be a multiple of 16"},
  };
  for (const Case& c : cases)
    EXPECT_SAYS(refusal(tiny_qwen35(c.shape)), c.says);
}

TEST(TinyModelLoads, RefusesALyingVocabulary) {
  const auto with = [](auto change) {
    GgufWriter w = tiny_qwen35({.vocab = 3});
    change(w);
    return refusal(w);
  };
  const auto tokens = [](GgufWriter& w, int n) {
    w.add_strings("tokenizer.ggml.tokens",
                  std::vector<std::string>(static_cast<std::size_t>(n), "x"));
  };
  EXPECT_EQ(with([&](auto& w) { tokens(w, 3); }), "");
  EXPECT_SAYS(with([&](auto& w) { tokens(w, 4); }), "4 tokens, but token_embd.weight has 3 rows");
  EXPECT_SAYS(with([&](auto& w) {
                tokens(w, 3);
                w.add_i32s("tokenizer.ggml.token_type", {1, 1});
              }),
              "token_type has 2 entries for 3 tokens");
  EXPECT_SAYS(with([&](auto& w) {
                tokens(w, 3);
                w.add_u32("tokenizer.ggml.eos_token_id", 3);
              }),
              "eos_token_id names no token");
}

TEST(TinyModelLoads, RefusesRopeScalingAndALongerWindow) {
  GgufWriter w = tiny_qwen35({});
  w.add_string("qwen35.rope.scaling.type", "yarn");
  EXPECT_SAYS(refusal(w), "rope scaling \"yarn\"");
  EXPECT_SAYS(refusal(tiny_qwen35({}), {.n_ctx = 513}),
              "longer than the 512 this model was trained for");
}

TEST(TinyModelLoads, SizesMemoryByWhatItTakes) {
  const MemoryFile file(tiny_qwen35({}).bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  ASSERT_TRUE(gguf);
  const auto pages = [](std::uint64_t bytes) { return kernels::Arena::make(bytes)->size(); };
  const auto need =
      memory_need(**gguf, {.n_ctx = 512, .threads = 1, .kv = KvType::f16, .chunk = 64});
  ASSERT_TRUE(need);
  // layers, positions, values, K and V, bytes
  EXPECT_EQ(need->kv, pages(2u * 512 * (1 * 64) * 2 * 2));
  // layers, then the state and the convolution tail of one
  EXPECT_EQ(need->state, pages(6u * (6 * 32 * 32 + 3 * (2 * 64 + 192)) * 4));
  EXPECT_EQ(need->total, need->weights + need->kv + need->state + need->scratch);
  const auto wide =
      memory_need(**gguf, {.n_ctx = 512, .threads = 1, .kv = KvType::f32, .chunk = 64});
  EXPECT_EQ(wide->kv, 2 * need->kv);
}

TEST(TinyModelLoads, CountsTheDraftLayerWhereItIsLoaded) {
  const MemoryFile file(
      tiny_qwen35({.layers = 2, .interval = 2, .vocab = 100, .matrices = kernels::DType::Q8_0})
          .bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  ASSERT_TRUE(gguf);
  LoadOptions options = {.n_ctx = 512, .threads = 1, .kv = KvType::f16, .chunk = 64};
  const auto plain = memory_need(**gguf, options);
  options.drafts = true;
  const auto need = memory_need(**gguf, options);
  ASSERT_TRUE(plain && need);
  const auto model = load(file.path(), options);
  EXPECT_EQ(need->kv, 8 * model->page_bytes());
  EXPECT_EQ(need->kv, 2 * plain->kv) << "an attention layer, and the draft layer's";
  const std::uint64_t row = 4 * 128;                              // a hidden state
  const std::uint64_t log = 1 * 16 * 4 * (2 * 320 - 64 + 2 * 6);  // of 16 rows on trial
  const std::uint64_t more = need->state - plain->state;
  EXPECT_GE(more, 66 * row + log);
  EXPECT_LE(more, 66 * row + log + 16 * row + 2 * 4096);
  // attention, dense part and eh_proj, in blocks of 34 bytes for 32 weights; then the norms
  const std::uint64_t layer =
      (128 * (2 * 384 + 2 * 64 + 384) + 3 * 128 * 352 + 2 * 128 * 128) / 32 * 34 +
      4 * (2 * 64 + 5 * 128);
  EXPECT_GE(need->weights - plain->weights, layer - 4096);
  EXPECT_LE(need->weights - plain->weights, layer * 103 / 100 + 4096);
  EXPECT_EQ(model->weight_bytes(), load(file.path(), {.n_ctx = 512, .threads = 1})->weight_bytes())
      << "a decode step does not read the draft layer";
}

TEST(TinyModelLoads, RefusesWhatTheMachineCannotHold) {
  EXPECT_TRUE(check_memory({.total = 1}));
  const auto refused = check_memory({.weights = 1ull << 60, .total = 1ull << 60});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::out_of_memory);
  EXPECT_SAYS(refused.error().message, "The model needs 1099511627776 MiB");
}

TEST(TinyModelLoads, SizesTheBundledFilesByTheirTensors) {
  for (const auto& [stem, ratio] : {std::pair{"pebble-q8_0", 1.03}, {"pebble-q4_k_m", 1.05}}) {
    const auto gguf = artifact::Gguf::open(pebble(stem));
    ASSERT_TRUE(gguf);
    std::uint64_t stored = 0;
    for (const auto& t : (*gguf)->tensors())
      if (!t.name.starts_with("blk.8.")) stored += t.bytes;
    const auto need = memory_need(**gguf, {.n_ctx = 4096});
    ASSERT_TRUE(need);
    EXPECT_GE(need->weights, stored);
    EXPECT_LE(static_cast<double>(need->weights), static_cast<double>(stored) * ratio + (2 << 20));
    EXPECT_EQ(need->kv, 8u << 20);
  }
}

}  // namespace
}  // namespace ponder::models::testing
