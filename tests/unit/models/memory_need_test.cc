// `ponder-engine info` says what a file needs at a context; here that is held against what the
// process really takes once the window is full.
#include <gtest/gtest.h>

#include <fstream>

#include "engine/models/model.h"
#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"

namespace ponder::models {
namespace {

/// Anonymous memory of this process that is in use. The model file lies in shared memory, which
/// does not count.
std::uint64_t anonymous_bytes() {
  std::ifstream in("/proc/self/status");
  for (std::string key; in >> key;) {
    std::uint64_t kib = 0;
    if (key == "RssAnon:" && in >> kib) return kib << 10;
    in.ignore(4096, '\n');
  }
  return 0;
}

struct Case {
  const char* name;
  kernels::DType weights;
  KvType kv;
  bool drafts;
};

class MemoryNeedIsRight : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryNeedIsRight, WithinTwoPercentOfAFullWindow) {
  const Case& c = GetParam();
  const ponder::testing::MemoryFile file(ponder::testing::expand_gguf(
      std::string(PONDER_SOURCE_DIR) + "/models/pebble/pebble-q8_0.gguf", c.weights));
  const auto gguf = artifact::Gguf::open(file.path());
  ASSERT_TRUE(gguf);
  const LoadOptions options = {.n_ctx = 4096, .threads = 2, .kv = c.kv, .drafts = c.drafts};
  const auto need = memory_need(**gguf, options);
  ASSERT_TRUE(need);
  const std::uint64_t before = anonymous_bytes();
  ASSERT_GT(before, 0u);
  const auto model = Model::load(**gguf, options);
  ASSERT_TRUE(model) << model.error().message;
  const auto sequence = (*model)->new_sequence();
  std::vector<std::int32_t> ids(512);
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(300 + i * 7 % 3000);
  for (int chunk = 0; chunk < 8; ++chunk)
    ASSERT_TRUE((*model)->forward(*sequence, ids, 0, {}));
  const auto taken = static_cast<double>(anonymous_bytes() - before);
  EXPECT_NEAR(taken / static_cast<double>(need->total), 1.0, 0.02)
      << taken / (1 << 20) << " MiB taken, " << (need->total >> 20) << " MiB announced";
}

INSTANTIATE_TEST_SUITE_P(
    Each, MemoryNeedIsRight,
    ::testing::Values(Case{"F32Exact", kernels::DType::F32, KvType::f32, false},
                      Case{"F16Half", kernels::DType::F16, KvType::f16, true},
                      Case{"BF16Rotated", kernels::DType::BF16, KvType::r4, false}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace ponder::models
