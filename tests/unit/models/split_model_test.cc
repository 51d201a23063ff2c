// A model published as several files computes what the same model in one file does.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "tests/support/tiny_models.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::GgufWriter;
using ponder::testing::raw;
using ponder::testing::tiny_qwen35;
using ponder::testing::tiny_transformer;

constexpr LoadOptions kOptions = {
    .n_ctx = 256, .threads = 2, .kv = KvType::f16, .chunk = 64, .drafts = true};

class SplitModel : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(dir_); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  /// `whole` as `count` files, its metadata in the first; the first path. Where `bare`, the first
  /// file has no tensors, as some tools write it.
  std::filesystem::path write_split(const GgufWriter& whole, std::size_t count, bool bare) const {
    std::vector<GgufWriter> parts(count);
    parts[0] = whole;
    parts[0].tensors.clear();
    const std::size_t first = bare ? 1 : 0, all = whole.tensors.size();
    // Neighbours go to different files: a layer lies in all of them.
    for (std::size_t i = 0; i < all; ++i)
      parts[first + i % (count - first)].tensors.push_back(whole.tensors[i]);
    for (std::size_t i = 0; i < count; ++i) {
      parts[i].add_raw("split.no", 2, raw(static_cast<std::uint16_t>(i)));
      parts[i].add_raw("split.count", 2, raw(static_cast<std::uint16_t>(count)));
      parts[i].add_raw("split.tensors.count", 5, raw(static_cast<std::int32_t>(all)));
      parts[i].write(part(i, count));
    }
    return part(0, count);
  }
  std::filesystem::path part(std::size_t i, std::size_t count) const {
    return dir_ /
           ("tiny-0000" + std::to_string(i + 1) + "-of-0000" + std::to_string(count) + ".gguf");
  }

  void expect_the_same(const GgufWriter& whole) const {
    whole.write(dir_ / "tiny.gguf");
    const auto one = load(dir_ / "tiny.gguf", kOptions);
    Ids ids(70);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<std::int32_t>((i * i * 31 + 7) % static_cast<std::size_t>(one->vocab()));
    const std::vector<float> logits = run(*one, ids, 64);
    for (const bool bare : {false, true}) {
      const auto split = load(write_split(whole, bare ? 4 : 3, bare), kOptions);
      EXPECT_EQ(split->drafts(), one->drafts());
      EXPECT_EQ(split->weight_bytes(), one->weight_bytes());
      ASSERT_EQ(split->vocab(), one->vocab());
      EXPECT_EQ(first_difference(logits, run(*split, ids, 64), one->vocab()), -1) << bare;
    }
  }

  const std::filesystem::path dir_ =
      std::filesystem::path(::testing::TempDir()) / ("split-model-" + std::to_string(::getpid()));
};

TEST_F(SplitModel, HybridWithADraftLayerHasTheLogitsOfTheOneFile) {
  expect_the_same(tiny_qwen35({.matrices = kernels::DType::Q8_0}));
}

TEST_F(SplitModel, MixtureHasTheLogitsOfTheOneFile) {
  expect_the_same(tiny_transformer({.architecture = "qwen3moe", .mixture = {16, 4, 64}}));
}

}  // namespace
}  // namespace ponder::models::testing
