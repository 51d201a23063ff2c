// Every architecture but qwen35: against the logits that transformers computes from the same
// weights (tests/golden/archs), against the slow reference on other shapes, and what a load
// refuses.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/json.h"
#include "engine/models/registry.h"
#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"
#include "tests/support/reference_decoder.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::GgufWriter;
using ponder::testing::MemoryFile;
using ponder::testing::Mistake;
using ponder::testing::reference_logits;
using ponder::testing::tiny_qwen35;
using ponder::testing::tiny_transformer;
using ponder::testing::TinyQwen35;
using ponder::testing::TinyTransformer;

constexpr LoadOptions kOptions = {.n_ctx = 256, .threads = 2, .kv = KvType::f32, .chunk = 64};

std::filesystem::path golden_file(const std::string& name) {
  return std::filesystem::path(PONDER_SOURCE_DIR) / "tests/golden/archs" / name;
}

Ids golden_ids() {
  const auto object = parse_json_object(ponder::testing::read_file(golden_file("ids.json")));
  Ids out;
  for (const json::value& id : object.value().at("ids").as_array())
    out.push_back(static_cast<std::int32_t>(id.as_int64()));
  return out;
}

std::vector<double> golden_logits(const std::string& name) {
  const std::string bytes = ponder::testing::read_file(golden_file(name + ".logits.bin"));
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return {values.begin(), values.end()};
}

template <class T>
double worst_relative(const std::vector<T>& logits, const std::vector<double>& expected) {
  EXPECT_EQ(logits.size(), expected.size());
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    const double difference = std::fabs(static_cast<double>(logits[i]) - expected[i]);
    if (!(difference <= worst)) worst = difference;
    largest = std::max(largest, std::fabs(expected[i]));
  }
  return worst / largest;
}

struct Golden {
  const char* name;
  std::vector<Mistake> noticed;
};
void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.name;
}

class Architectures : public ::testing::TestWithParam<Golden> {
 protected:
  const std::string name_ = GetParam().name;
  const std::unique_ptr<artifact::Gguf> file_ =
      artifact::Gguf::open(golden_file(name_ + ".gguf")).value();
  const Ids ids_ = golden_ids();
  const std::vector<double> expected_ = golden_logits(name_);
};

TEST_P(Architectures, ComputeTheLogitsOfTransformers) {
  const auto model = load(file_->path(), kOptions);
  const std::vector<float> logits = run(*model, ids_, 64);
  EXPECT_LT(worst_relative(logits, expected_), 1e-4);
  for (const std::int64_t chunk : {1, 2, 7, 33})
    EXPECT_EQ(first_difference(logits, run(*model, ids_, chunk), model->vocab()), -1) << chunk;
}

TEST_P(Architectures, HaveASlowReferenceThatAgreesToo) {
  EXPECT_LT(worst_relative(reference_logits(*file_, ids_), expected_), 1e-4);
}

TEST_P(Architectures, NoticeTheMistakesThatAreEasilyMade) {
  for (const Mistake mistake : GetParam().noticed)
    EXPECT_GT(worst_relative(reference_logits(*file_, ids_, mistake), expected_), 1e-2)
        << static_cast<int>(mistake);
}

INSTANTIATE_TEST_SUITE_P(
    All, Architectures,
    ::testing::Values(Golden{"qwen3", {Mistake::other_rope_pairing, Mistake::no_head_norms}},
                      Golden{"qwen3moe",
                             {Mistake::other_rope_pairing, Mistake::no_head_norms,
                              Mistake::no_renormalisation}},
                      Golden{"qwen3moe-fused", {Mistake::no_renormalisation}},
                      Golden{"llama", {Mistake::other_rope_pairing}},
                      Golden{"llama3", {Mistake::other_rope_pairing, Mistake::no_rope_divisors}},
                      Golden{"qwen35moe",
                             {Mistake::other_rope_pairing, Mistake::no_head_norms,
                              Mistake::no_renormalisation, Mistake::no_shared_gate}}),
    [](const auto& p) {
      std::string name = p.param.name;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

Ids some_ids(std::int32_t vocab, int n) {
  Ids out;
  std::uint32_t x = 4711;
  for (int i = 0; i < n; ++i) {
    x = x * 1664525 + 1013904223;
    out.push_back(static_cast<std::int32_t>((x >> 8) % static_cast<std::uint32_t>(vocab)));
  }
  return out;
}

/// Largest difference to the slow reference; and any chunking must give the same bits.
double difference_to_reference(const GgufWriter& writer, Mistake mistake = Mistake::none) {
  const MemoryFile file(writer.bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  EXPECT_TRUE(gguf) << gguf.error().message;
  const auto model = load(file.path(), kOptions);
  const Ids ids = some_ids(model->vocab(), 70);
  const std::vector<float> logits = run(*model, ids, 64);
  for (const std::int64_t chunk : {1, 3, 33})
    EXPECT_EQ(first_difference(logits, run(*model, ids, chunk), model->vocab()), -1) << chunk;
  return worst_relative(logits, reference_logits(**gguf, ids, mistake));
}

TEST(TinyTransformers, AgreeWithTheSlowReferenceOnOtherShapes) {
  const TinyTransformer shapes[] = {
      {.head_dim = 64, .seed = 11},
      {.tied = false, .heads = 3, .kv_heads = 3, .head_dim = 128, .seed = 12},
      {.architecture = "llama", .seed = 13},
      {.architecture = "llama", .hidden = 144, .heads = 9, .kv_heads = 3, .seed = 14},
      {.architecture = "llama", .head_dim = 48, .rot = 32, .rope_divisors = true, .seed = 15},
      {.architecture = "llama", .heads = 2, .kv_heads = 1, .head_dim = 256, .seed = 16},
  };
  for (const TinyTransformer& shape : shapes)
    EXPECT_LT(difference_to_reference(tiny_transformer(shape)), 1e-4) << shape.seed;
}

TEST(TinyMixtures, AgreeWithTheSlowReferenceOnOtherShapes) {
  using kernels::DType;
  const TinyTransformer plain[] = {
      {.architecture = "qwen3moe", .seed = 21, .mixture = {16, 4, 64}},
      {.architecture = "qwen3moe", .seed = 22, .mixture = {5, 5, 33}},  // rows no multiple of 16
      {.architecture = "qwen3moe", .seed = 23, .mixture = {40, 1, 32, 0, true}},
      {.architecture = "qwen3moe", .seed = 24, .mixture = {9, 2, 24, 0, true, DType::F16}},
      {.architecture = "qwen3moe", .seed = 25, .mixture = {130, 10, 16}},
  };
  for (const TinyTransformer& shape : plain)
    EXPECT_LT(difference_to_reference(tiny_transformer(shape)), 1e-4) << shape.seed;
  const TinyQwen35 hybrid[] = {
      {.heads = 4, .v_heads = 4, .seed = 31, .mixture = {16, 4, 64, 64}},
      {.layers = 4, .nextn = 0, .seed = 32, .mixture = {8, 2, 40, 96, false, DType::BF16}},
      {.layers = 4, .seed = 33, .mixture = {8, 3, 32, 48, true}},
  };
  for (const TinyQwen35& shape : hybrid)
    EXPECT_LT(difference_to_reference(tiny_qwen35(shape)), 1e-4) << shape.seed;
}

TEST(TinyMixtures, EqualRoutersGoToTheLowerExpert) {
  GgufWriter w = tiny_transformer({.architecture = "qwen3moe", .seed = 26, .mixture = {8, 3, 32}});
  for (auto& t : w.tensors)  // experts 2 i and 2 i + 1 have the same router row
    if (t.name.ends_with("ffn_gate_inp.weight"))
      for (std::size_t e = 0, row = t.data.size() / 8; e < 8; e += 2)
        t.data.replace((e + 1) * row, row, t.data.substr(e * row, row));
  EXPECT_LT(difference_to_reference(w), 1e-4);
  EXPECT_GT(difference_to_reference(w, Mistake::higher_expert_wins_ties), 1e-2);
}

TEST(TinyMixtures, CountTheExpertsThatAStepReads) {
  const auto need = [](const GgufWriter& writer) {
    const MemoryFile file(writer.bytes());
    const auto gguf = artifact::Gguf::open(file.path());
    EXPECT_TRUE(gguf);
    return memory_need(**gguf, kOptions).value();
  };
  const TinyTransformer small = {.architecture = "qwen3moe", .mixture = {8, 2, 64}};
  TinyTransformer large = small;
  large.mixture.experts = 64;
  const auto some = load_bytes(tiny_transformer(small).bytes(), kOptions);
  const auto many = load_bytes(tiny_transformer(large).bytes(), kOptions);
  // what more experts cost a step is their rows in the router, and memory for all of them
  const std::uint64_t routers = 4u * 56 * 96 * 4;
  EXPECT_LE(many->weight_bytes() - some->weight_bytes(), routers + 4u * 4096);
  EXPECT_GE(need(tiny_transformer(large)).weights - need(tiny_transformer(small)).weights,
            4u * 56 * 3 * 64 * 96 * 4);
}

/// The message that refuses `writer`'s file, or "".
std::string refusal(const GgufWriter& writer) {
  const MemoryFile file(writer.bytes());
  const auto gguf = artifact::Gguf::open(file.path());
  if (!gguf) return gguf.error().message;
  const auto model = Model::load(**gguf, kOptions);
  EXPECT_EQ(model.has_value(), memory_need(**gguf, kOptions).has_value());
  EXPECT_EQ(model.has_value(), unsupported(**gguf).empty());
  return model ? "" : model.error().message + " " + model.error().hint;
}

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

GgufWriter with_tensor(GgufWriter w, const std::string& name) {
  w.tensors.push_back({name, {16}, 0, std::string(64, '\0')});
  return w;
}

TEST(Refusals, NameWhatWouldChangeTheNumbers) {
  const GgufWriter llama = tiny_transformer({.architecture = "llama"});
  EXPECT_EQ(refusal(llama), "");
  EXPECT_SAYS(refusal(with_tensor(llama, "blk.0.attn_q.bias")), "blk.0.attn_q.bias is a bias");
  EXPECT_SAYS(refusal(with_tensor(llama, "blk.1.ffn_norm.scale")), "scales what is no product");
  EXPECT_SAYS(refusal(with_tensor(llama, "blk.1.attn_sinks.weight")), "no part of the models");
  EXPECT_EQ(refusal(with_tensor(llama, "blk.1.ffn_up.input_scale")), "");
  EXPECT_EQ(refusal(with_tensor(llama, "v.blk.0.attn_q.bias")), "");
}

TEST(Refusals, OfRopeScalingAndOtherMixtures) {
  GgufWriter w = tiny_transformer({.architecture = "llama"});
  w.add_string("llama.rope.scaling.type", "linear");
  EXPECT_SAYS(refusal(w), "rope scaling \"linear\"");
  w = tiny_transformer({.architecture = "llama"});
  w.add_u32("llama.expert_count", 8);
  EXPECT_SAYS(refusal(w), "mixture of 8 experts of the Mixtral kind");
  const TinyTransformer shape = {.architecture = "qwen3moe", .mixture = {8, 2, 32}};
  w = tiny_transformer(shape);
  w.add_u32("qwen3moe.expert_gating_func", 2);
  EXPECT_SAYS(refusal(w), "only a softmax over all experts");
  w = tiny_transformer(shape);
  w.add_f32("qwen3moe.expert_weights_scale", 2.5f);
  EXPECT_SAYS(refusal(w), "expert_weights_scale is 2.5");
  w = tiny_transformer(shape);
  w.add_bool("qwen3moe.expert_weights_norm", false);
  EXPECT_SAYS(refusal(w), "expert_weights_norm is false");
  w = tiny_transformer(shape);
  w.add_u32("qwen3moe.expert_group_count", 4);
  EXPECT_SAYS(refusal(w), "chosen by group");
}

TEST(Refusals, OfExpertNumbersOutOfBounds) {
  const auto moe = [](std::uint32_t experts, std::uint32_t used) {
    GgufWriter w = tiny_transformer({.architecture = "qwen3moe"});  // dense tensors, never reached
    w.add_u32("qwen3moe.expert_count", experts);
    w.add_u32("qwen3moe.expert_used_count", used);
    w.add_u32("qwen3moe.expert_feed_forward_length", 32);
    return refusal(w);
  };
  EXPECT_SAYS(moe(0, 1), "expert_count is 0");
  EXPECT_SAYS(moe(5000, 8), "expert_count is 5000");
  EXPECT_SAYS(moe(4, 5), "more than the 4 experts");
  EXPECT_SAYS(moe(4, 0), "expert_used_count is 0");
  EXPECT_SAYS(moe(256, 65), "expert_used_count is 65");
  EXPECT_SAYS(moe(4, 2), "blk.0.ffn_gate_inp.weight is missing");
}

TEST(Refusals, SayWhatToUseInstead) {
  for (const auto& [architecture, instead] :
       {std::pair{"qwen3next", "qwen35moe"}, {"qwen2", "Qwen3"}, {"gemma3", "Qwen3"}}) {
    GgufWriter w;
    w.add_string("general.architecture", architecture);
    const std::string said = refusal(w);
    EXPECT_SAYS(said, std::string("The architecture ") + architecture + " is not supported");
    EXPECT_SAYS(said, "qwen35, qwen35moe, qwen3, qwen3moe, llama");
    EXPECT_SAYS(said, instead);
  }
}

}  // namespace
}  // namespace ponder::models::testing
