// The bundled files against logits that transformers' qwen3_5 computed in float32 from the same
// weights (tests/golden/logits/make_logits.py): once with the weights expanded to float32, where
// only rounding may differ, and once as they are run, where the activations are quantised.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "kernels/quant/formats.h"
#include "tests/support/model_files.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::TensorEdit;

struct Comparison {
  double worst = 0;       ///< largest difference over the largest logit of the row
  double mean_kl = 0;     ///< of the model's distribution from the reference's, in nats
  std::size_t agree = 0;  ///< positions with the same largest logit
  std::size_t positions = 0;
};

double kl(std::span<const float> reference, std::span<const float> logits) {
  const auto log_sum = [](std::span<const float> x) {
    const double top = *std::max_element(x.begin(), x.end());
    double sum = 0;
    for (const float v : x)
      sum += std::exp(v - top);
    return top + std::log(sum);
  };
  const double a = log_sum(reference), b = log_sum(logits);
  double total = 0;
  for (std::size_t i = 0; i < reference.size(); ++i)
    total += std::exp(reference[i] - a) * ((reference[i] - a) - (logits[i] - b));
  return total;
}

/// Runs the first `count` conversations that the golden file asks about.
Comparison compare(Model& model, const Golden& golden, std::size_t count = 1000) {
  const std::vector<Conversation> talks = conversations();
  Comparison out;
  std::size_t rows = 0;
  for (std::size_t i = 0; i < std::min(count, talks.size()); ++i) {
    const std::vector<float> logits = run(model, talks[i].ids, 512);
    const auto row_at = [&](std::size_t position) {
      const auto vocab = static_cast<std::size_t>(model.vocab());
      return std::span<const float>(logits).subspan(position * vocab, vocab);
    };
    for (const Golden::Position& p : golden.positions) {
      if (p.conversation != i) continue;
      const auto row = row_at(p.position);
      out.agree += std::max_element(row.begin(), row.end()) - row.begin() == p.argmax;
      ++out.positions;
    }
    for (const Golden::Row& r : golden.rows) {
      if (r.conversation != i) continue;
      const auto row = row_at(r.position);
      double worst = 0, largest = 0;
      for (std::size_t v = 0; v < row.size(); ++v) {
        const double difference =
            std::fabs(static_cast<double>(row[v]) - static_cast<double>(r.logits[v]));
        if (!(difference <= worst)) worst = difference;  // also when it is NaN
        largest = std::max(largest, std::fabs(static_cast<double>(r.logits[v])));
      }
      if (!(worst / largest <= out.worst)) out.worst = worst / largest;
      out.mean_kl += kl(r.logits, row);
      ++rows;
    }
  }
  out.mean_kl /= static_cast<double>(rows);
  return out;
}

LoadOptions options(KvType kv) {
  return {.n_ctx = 1024, .threads = 2, .kv = kv, .chunk = 512};
}

class GoldenLogits : public ::testing::TestWithParam<const char*> {};

TEST_P(GoldenLogits, HoldWhatTheTestsAskFor) {
  const auto g = golden(GetParam());
  EXPECT_EQ(g->positions.size(), 2000u);
  EXPECT_EQ(g->rows.size(), 64u);
  EXPECT_GE(conversations().size(), 50u);
}

TEST_P(GoldenLogits, ExpandedToFloat32DifferOnlyByRounding) {
  const std::string file = ponder::testing::expand_gguf(pebble(GetParam()), kernels::DType::F32);
  const auto model = load_bytes(file, options(KvType::f32));
  const Comparison c = compare(*model, *golden(GetParam()));
  RecordProperty("worst_relative", std::to_string(c.worst));
  std::printf("worst %.3g of the largest logit\n", c.worst);
  EXPECT_LE(c.worst, 1e-4);
  EXPECT_EQ(c.agree, c.positions);
  EXPECT_EQ(c.positions, 2000u);
}

TEST_P(GoldenLogits, QuantisedAgreeInTheirChoices) {
  const auto model = load(pebble(GetParam()), options(KvType::f16));
  const Comparison c = compare(*model, *golden(GetParam()));
  RecordProperty("agree", static_cast<int>(c.agree));
  RecordProperty("mean_kl", std::to_string(c.mean_kl));
  std::printf("%zu of %zu agree, mean KL %.3g\n", c.agree, c.positions, c.mean_kl);
  EXPECT_GE(c.agree, 1980u);
  EXPECT_EQ(c.positions, 2000u);
  EXPECT_LE(c.mean_kl, 0.001);
}

INSTANTIATE_TEST_SUITE_P(Files, GoldenLogits, ::testing::Values("pebble-q8_0", "pebble-q4_k_m"),
                         [](const auto& p) { return std::string(p.param).substr(7); });

// What the comparison is worth: weights that mimic the usual mistakes must miss the bound by far.

constexpr std::size_t kHidden = 512, kDk = 128, kHeadDim = 256;

void swap_blocks(std::span<float> values, std::size_t a, std::size_t b, std::size_t count) {
  std::swap_ranges(values.begin() + static_cast<std::ptrdiff_t>(a),
                   values.begin() + static_cast<std::ptrdiff_t>(a + count),
                   values.begin() + static_cast<std::ptrdiff_t>(b));
}

/// Value heads meet the other key head: the two heads of queries and of keys change places.
void wrong_key_heads(const std::string& name, std::span<float> values) {
  const std::size_t row = name.ends_with("attn_qkv.weight")     ? kHidden
                          : name.ends_with("ssm_conv1d.weight") ? 4
                                                                : 0;
  if (row == 0) return;
  swap_blocks(values, 0, kDk * row, kDk * row);
  swap_blocks(values, 2 * kDk * row, 3 * kDk * row, kDk * row);
}
void norms_plus_one(const std::string& name, std::span<float> values) {
  if (!name.ends_with("norm.weight") || name.ends_with("ssm_norm.weight")) return;
  for (float& x : values)
    x += 1;
}
void gated_norm_plus_one(const std::string& name, std::span<float> values) {
  if (name.ends_with("ssm_norm.weight"))
    for (float& x : values)
      x += 1;
}
void decay_exponentiated_twice(const std::string& name, std::span<float> values) {
  if (name.ends_with("ssm_a"))
    for (float& x : values)
      x = -std::exp(x);
}
void taps_reversed(const std::string& name, std::span<float> values) {
  if (name.ends_with("ssm_conv1d.weight"))
    for (std::size_t at = 0; at < values.size(); at += 4)
      std::reverse(&values[at], &values[at] + 4);
}
void gate_before_query(const std::string& name, std::span<float> values) {
  if (!name.ends_with("attn_q.weight")) return;
  for (std::size_t head = 0; head < 4; ++head)
    swap_blocks(values, head * 2 * kHeadDim * kHidden, (head * 2 + 1) * kHeadDim * kHidden,
                kHeadDim * kHidden);
}
void one_channel_of_one_norm(const std::string& name, std::span<float> values) {
  if (name == "blk.6.attn_norm.weight") values[300] *= 1.2f;
}

TEST(GoldenLogitsCatch, TheUsualMistakes) {
  const auto g = golden("pebble-q8_0");
  const std::pair<const char*, void (*)(const std::string&, std::span<float>)> mistakes[] = {
      {"wrong key heads", wrong_key_heads},
      {"norms + 1", norms_plus_one},
      {"ssm_norm + 1", gated_norm_plus_one},
      {"ssm_a exponentiated twice", decay_exponentiated_twice},
      {"convolution taps reversed", taps_reversed},
      {"gate before query", gate_before_query},
      {"one channel off by 20 %", one_channel_of_one_norm}};
  for (const auto& [name, edit] : mistakes) {
    const std::string file =
        ponder::testing::expand_gguf(pebble("pebble-q8_0"), kernels::DType::F32, edit);
    const auto model = load_bytes(file, options(KvType::f32));
    const Comparison c = compare(*model, *g, 6);
    EXPECT_GT(c.worst, 1.1e-4) << name;
  }
}

}  // namespace
}  // namespace ponder::models::testing
