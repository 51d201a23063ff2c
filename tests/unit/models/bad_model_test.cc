// Damaged model files that pass as containers: each is refused with a sentence or loads to a model
// that computes without leaving its memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>

#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"
#include "tests/unit/models/model_runs.h"

namespace ponder::models::testing {
namespace {

using ponder::testing::MemoryFile;

/// True if the file was refused. One that is accepted is run for a few tokens.
bool refused(std::string_view bytes, std::size_t file_size = 0) {
  const MemoryFile file(bytes, file_size);
  const auto gguf = artifact::Gguf::open(file.path());
  if (!gguf) return true;
  const LoadOptions options = {.threads = 1, .chunk = 8};
  const auto need = memory_need(**gguf, options);
  const auto model = Model::load(**gguf, options);
  if (!model) {
    const std::string& message = model.error().message;
    EXPECT_TRUE(message.ends_with(".")) << message;
    EXPECT_LT(message.size(), 1000u) << message;
    return true;
  }
  EXPECT_TRUE(need.has_value());
  EXPECT_TRUE(unsupported(**gguf).empty());
  EXPECT_LT(need->weights, 16 * (bytes.size() + file_size));
  const std::int32_t vocab = (*model)->vocab();
  const Ids ids = {0, vocab - 1, vocab / 2};
  std::vector<float> logits(static_cast<std::size_t>(vocab));
  const auto sequence = (*model)->new_sequence();
  if (static_cast<std::int64_t>(ids.size()) <= std::min((*model)->n_ctx(), (*model)->chunk())) {
    EXPECT_TRUE((*model)->forward(*sequence, ids, 1, logits));
  }
  return false;
}

std::string tiny() {
  return ponder::testing::tiny_qwen35({.layers = 2,
                                       .interval = 2,
                                       .nextn = 1,
                                       .hidden = 32,
                                       .ffn = 32,
                                       .vocab = 40,
                                       .heads = 2,
                                       .kv_heads = 1,
                                       .head_dim = 16,
                                       .rot = 8,
                                       .k_heads = 1,
                                       .v_heads = 2,
                                       .dk = 16})
      .bytes();
}

/// Where the tensor data begins: the first tensor's values.
std::size_t head_size(const std::string& file) {
  const MemoryFile memory(file);
  const auto gguf = artifact::Gguf::open(memory.path());
  return (*gguf)->tensors().front().offset;
}

TEST(BadModel, TheSoundFileLoads) {
  EXPECT_FALSE(refused(tiny()));
}

TEST(BadModel, EveryByteOfTheHeadFlipped) {
  const std::string file = tiny();
  const std::size_t head = head_size(file);
  std::mt19937 random(3);
  std::size_t refusals = 0;
  for (std::size_t at = 0; at < head; ++at) {
    std::string bad = file;
    bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
    refusals += refused(bad);
  }
  EXPECT_GT(refusals, head / 2);
}

TEST(BadModel, EveryNumberOfTheMetadataReplaced) {
  const std::string file = tiny();
  std::size_t tried = 0;
  for (std::size_t at = file.find("qwen35."); at != std::string::npos;
       at = file.find("qwen35.", at + 1)) {
    std::uint64_t length = 0;
    std::memcpy(&length, file.data() + at - 8, 8);
    const std::size_t value = at + length + 4;
    if (length > 64 || value + 4 > head_size(file)) continue;
    for (const std::uint32_t number :
         {0u, 1u, 2u, 3u, 15u, 16u, 17u, 64u, 255u, 1u << 16, 1u << 31, ~0u}) {
      std::string bad = file;
      std::memcpy(bad.data() + value, &number, 4);
      refused(bad);
      ++tried;
    }
  }
  EXPECT_GT(tried, 200u);
}

TEST(BadModel, EveryTruncationOfTheDataIsRefused) {
  const std::string file = tiny();
  for (std::size_t size = head_size(file); size + 64 < file.size(); size += 997)
    EXPECT_TRUE(refused(file.substr(0, size))) << size;
}

TEST(BadModel, RandomWeightsOfAnyBitsAreComputed) {
  std::string file = tiny();
  const std::size_t head = head_size(file);
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    for (std::size_t at = head; at < file.size(); ++at)
      file[at] = static_cast<char>(random());
    EXPECT_FALSE(refused(file));
  }
}

TEST(BadModel, DamagedHeadsOfTheBundledFile) {
  const std::string whole = ponder::testing::read_file(pebble("pebble-q4_k_m"));
  const std::size_t head = 137760;
  std::mt19937 random(5);
  std::size_t refusals = 0;
  for (int i = 0; i < 60; ++i) {
    std::string bad = whole.substr(0, head);
    // the keys of the architecture stand in the first 1,500 bytes, the tensor list at the end
    const std::size_t at = i % 2 ? 24 + random() % 1500 : head - 8000 + random() % 7900;
    bad[at] = static_cast<char>(random());
    refusals += refused(bad, whole.size());
  }
  EXPECT_GT(refusals, 20u);
}

}  // namespace
}  // namespace ponder::models::testing
