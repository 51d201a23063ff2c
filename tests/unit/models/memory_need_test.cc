// `ponder-engine info` says what a file needs at a context; here the command itself is held against
// what the process really takes once the window is full, with the draft layer that the daemon loads
// and without it.
#include <gtest/gtest.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstring>
#include <fstream>
#include <memory>

#include "engine/base/json.h"
#include "engine/models/kv_pages.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "tests/support/memory_file.h"
#include "tests/support/model_files.h"

namespace ponder::models {
namespace {

constexpr std::int64_t kContext = 4096;
constexpr std::int64_t kWrittenContext = 2048;  ///< of the models written here

/// Anonymous memory of this process that is in use. The model file lies in the page cache or in
/// shared memory, which do not count.
std::uint64_t anonymous_bytes() {
#if defined(__GLIBC__)
  ::malloc_trim(0);
#endif
  std::ifstream in("/proc/self/status");
  for (std::string key; in >> key;) {
    std::uint64_t kib = 0;
    if (key == "RssAnon:" && in >> kib) return kib << 10;
    in.ignore(4096, '\n');
  }
  return 0;
}

/// Models of the other architectures, of 70 to 100 MiB with a full window: 2 % of that is more than
/// what the process takes for itself.
using Written = ponder::testing::GgufWriter (*)();
ponder::testing::GgufWriter dense(const char* architecture, std::uint32_t layers,
                                  std::uint32_t ffn = 1024) {
  return ponder::testing::tiny_transformer({.architecture = architecture,
                                            .layers = layers,
                                            .hidden = 512,
                                            .ffn = ffn,
                                            .vocab = 4096,
                                            .heads = 4,
                                            .kv_heads = 4,
                                            .context = kWrittenContext,
                                            .matrices = kernels::DType::Q8_0});
}
ponder::testing::GgufWriter llama() {
  return dense("llama", 12);
}
/// A chunk of such rows in f32 would be a sixth of it; all its matrices are quantised.
ponder::testing::GgufWriter wide() {
  return dense("llama", 5, 8192);
}
ponder::testing::GgufWriter qwen3() {
  return dense("qwen3", 16);
}
ponder::testing::GgufWriter qwen3moe() {
  return ponder::testing::tiny_transformer({.architecture = "qwen3moe",
                                            .layers = 4,
                                            .hidden = 512,
                                            .vocab = 4096,
                                            .heads = 8,
                                            .kv_heads = 2,
                                            .head_dim = 128,
                                            .context = kWrittenContext,
                                            .matrices = kernels::DType::Q8_0,
                                            .mixture = {32, 2, 256}});
}
ponder::testing::GgufWriter qwen35moe() {
  return ponder::testing::tiny_qwen35({.layers = 4,
                                       .hidden = 512,
                                       .vocab = 4096,
                                       .heads = 8,
                                       .kv_heads = 2,
                                       .head_dim = 128,
                                       .rot = 32,
                                       .k_heads = 4,
                                       .v_heads = 8,
                                       .dk = 64,
                                       .context = kWrittenContext,
                                       .matrices = kernels::DType::Q8_0,
                                       .mixture = {32, 2, 256, 256}});
}

struct Case {
  const char* name;
  const char* file;                        ///< of the bundled ones; null: `written`
  std::optional<kernels::DType> expanded;  ///< its weights are expanded to this type first
  const char* kv;
  int spec;
  Written written = nullptr;
};

/// What `info` prints as the total.
std::uint64_t announced(const worker::ModelArguments& model, int spec) {
  ::testing::internal::CaptureStdout();
  const Result<int> code = worker::run_info({model, true, spec});
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(code.value_or(-1), worker::kExitDone);
  const auto facts = parse_json_object(printed);
  EXPECT_TRUE(facts) << printed;
  return facts->at("memory").at("total").to_number<std::uint64_t>();
}

/// Fills the window as a conversation does: the prompt in chunks, then a step with drafts.
void fill_window(Model& model, SequenceState& sequence) {
  constexpr std::int64_t kDrafts = 3;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(model.n_ctx()));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<std::int32_t>(300 + i * 7 % 3000);
  const std::size_t prompt = ids.size() - 1 - kDrafts;
  for (std::size_t at = 0; at < prompt; at += static_cast<std::size_t>(model.chunk())) {
    const std::size_t n = std::min(prompt - at, static_cast<std::size_t>(model.chunk()));
    ASSERT_TRUE(model.forward(sequence, std::span(ids).subspan(at, n), 0, {}));
  }
  if (!model.drafts()) {
    ASSERT_TRUE(model.forward(sequence, std::span(ids).subspan(prompt), 0, {}));
    return;
  }
  std::vector<float> logits(static_cast<std::size_t>(model.vocab()));
  for (std::size_t i = 0; i < kDrafts; ++i) {
    const DraftPart part{&sequence, ids[prompt + i]};
    ASSERT_TRUE(model.draft(std::span(&part, 1), logits));
  }
  const StepPart step{&sequence, std::span(ids).subspan(prompt), 0, true};
  ASSERT_TRUE(model.forward(std::span(&step, 1), {}));
  model.keep(sequence, kDrafts + 1);
}

class MemoryNeedIsRight : public ::testing::TestWithParam<Case> {};

TEST_P(MemoryNeedIsRight, WithinTwoPercentOfAFullWindow) {
  const Case& c = GetParam();
  std::unique_ptr<ponder::testing::MemoryFile> made;
  worker::ModelArguments arguments;
  if (c.written) {
    made = std::make_unique<ponder::testing::MemoryFile>(c.written().bytes());
  } else {
    arguments.file = std::string(PONDER_SOURCE_DIR) + "/models/pebble/" + c.file;
    if (c.expanded)
      made = std::make_unique<ponder::testing::MemoryFile>(
          ponder::testing::expand_gguf(arguments.file, *c.expanded));
  }
  if (made) arguments.file = made->path();
  arguments.n_ctx = c.written ? kWrittenContext : kContext;
  arguments.threads = 2;
  arguments.kv = c.kv;
  const auto need = static_cast<double>(announced(arguments, c.spec));
  arguments.drafts = c.spec != 0;  // as the worker loads it
  const std::uint64_t before = anonymous_bytes();
  ASSERT_GT(before, 0u);
  const auto model = worker::load_weights(arguments);
  ASSERT_TRUE(model) << model.error().message;
  ASSERT_EQ((*model)->drafts(), c.spec != 0);
  const auto sequence = (*model)->new_sequence();
  fill_window(**model, *sequence);
  const auto taken = static_cast<double>(anonymous_bytes() - before);
  EXPECT_NEAR(taken / need, 1.0, 0.02)
      << taken / (1 << 20) << " MiB taken, " << need / (1 << 20) << " MiB announced";
}

std::vector<Case> cases() {
  using kernels::DType;
  std::vector<Case> all = {{"F32KvF32", "pebble-q8_0.gguf", DType::F32, "f32", 0},
                           {"F16KvF16Drafts", "pebble-q8_0.gguf", DType::F16, "f16", -1},
                           {"BF16KvR4", "pebble-q8_0.gguf", DType::BF16, "r4", 0}};
  const auto add = [&](const char* file, const char* kv, const char* plain, const char* drafts) {
    all.push_back({plain, file, {}, kv, 0});
    all.push_back({drafts, file, {}, kv, -1});
  };
  add("pebble-q8_0.gguf", "q8_0", "Q8KvQ8", "Q8KvQ8Drafts");
  add("pebble-q8_0.gguf", "f16", "Q8KvF16", "Q8KvF16Drafts");
  add("pebble-q8_0.gguf", "r4", "Q8KvR4", "Q8KvR4Drafts");
  add("pebble-q4_k_m.gguf", "q8_0", "Q4KMKvQ8", "Q4KMKvQ8Drafts");
  add("pebble-q4_k_m.gguf", "f16", "Q4KMKvF16", "Q4KMKvF16Drafts");
  add("pebble-q4_k_m.gguf", "r4", "Q4KMKvR4", "Q4KMKvR4Drafts");
  all.push_back({"LlamaKvF16", nullptr, {}, "f16", 0, llama});
  all.push_back({"LlamaWideKvF16", nullptr, {}, "f16", 0, wide});
  all.push_back({"Qwen3KvQ8", nullptr, {}, "q8_0", 0, qwen3});
  all.push_back({"Qwen3MoeKvR4", nullptr, {}, "r4", 0, qwen3moe});
  all.push_back({"Qwen35MoeKvF16", nullptr, {}, "f16", 0, qwen35moe});
  all.push_back({"Qwen35MoeKvF16Drafts", nullptr, {}, "f16", -1, qwen35moe});
  return all;
}

INSTANTIATE_TEST_SUITE_P(Each, MemoryNeedIsRight, ::testing::ValuesIn(cases()),
                         [](const auto& instance) { return std::string(instance.param.name); });

/// Attention layers and KV heads of a model whose heads have 256 values.
struct KvCase {
  const char* name;
  std::int64_t layers, heads;
  kernels::KvElement element;
  std::size_t token_bytes;  ///< in pages of 64 positions, rounded up to whole pages of the machine
};

class KvMemory : public ::testing::TestWithParam<KvCase> {};

TEST_P(KvMemory, ATokenTakesWhatItsPagesSay) {
  const KvCase& c = GetParam();
  KvLayout layout;
  layout.main = {c.element, c.heads, 256};
  layout.main_layers = c.layers;
  EXPECT_EQ(layout.page_bytes(), c.token_bytes * 64);
  KvTable table(layout, kContext);
  const std::uint64_t before = anonymous_bytes();
  ASSERT_TRUE(table.make_writable(0, kContext));
  for (std::int64_t layer = 0; layer < c.layers; ++layer)
    for (std::byte* const block : table.blocks(layer))
      std::memset(block, 1, kernels::kv_block_bytes(layout.main));
  const auto taken = static_cast<double>(anonymous_bytes() - before);
  EXPECT_NEAR(taken / kContext / static_cast<double>(c.token_bytes), 1.0, 0.02)
      << taken / kContext << " bytes a token";
}

using kernels::KvElement;
INSTANTIATE_TEST_SUITE_P(Each, KvMemory,
                         ::testing::Values(KvCase{"PebbleF16", 2, 1, KvElement::f16, 2048},
                                           KvCase{"PebbleQ8", 2, 1, KvElement::q8_0, 1088},
                                           KvCase{"PebbleR4", 2, 1, KvElement::r4,
                                                  576},  // 528 and the rounding
                                           KvCase{"Of08BF16", 6, 2, KvElement::f16, 12288},
                                           KvCase{"Of08BQ8", 6, 2, KvElement::q8_0, 6528},
                                           KvCase{"Of08BR4", 6, 2, KvElement::r4, 3200},  // 3168
                                           KvCase{"Of4BF16", 8, 4, KvElement::f16, 32768},
                                           KvCase{"Of4BQ8", 8, 4, KvElement::q8_0, 17408},
                                           KvCase{"Of4BR4", 8, 4, KvElement::r4, 8448}),
                         [](const auto& instance) { return std::string(instance.param.name); });

TEST(MemoryNeed, CountsTheDraftLayerAsTheDaemonDoesUnlessToldNotTo) {
  worker::ModelArguments arguments;
  arguments.file = std::string(PONDER_SOURCE_DIR) + "/models/pebble/pebble-q8_0.gguf";
  arguments.n_ctx = 4096;
  EXPECT_EQ(worker::InfoArguments{}.spec, worker::WorkerArguments{}.spec);
  EXPECT_GT(announced(arguments, worker::InfoArguments{}.spec),
            announced(arguments, 0) + (std::uint64_t{4} << 20));
}

}  // namespace
}  // namespace ponder::models
