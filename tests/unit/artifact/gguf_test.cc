// What a sound file gives back: metadata by type, tensors by name, shards as one.
#include "engine/artifact/gguf.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <limits>

#include "tests/support/gguf_writer.h"
#include "tests/support/memory_file.h"

namespace ponder::artifact {
namespace {

using ponder::testing::GgufWriter;
using ponder::testing::MemoryFile;

std::filesystem::path temp_dir(const char* name) {
  const std::filesystem::path dir = std::filesystem::path(::testing::TempDir()) /
                                    (std::string(name) + std::to_string(::getpid()));
  std::filesystem::create_directories(dir);
  return dir;
}

GgufWriter sample_file() {
  GgufWriter w;
  w.add_string("general.architecture", "test");
  w.add_u32("a.u32", 4000000000u);
  w.add_raw("a.u8", 0, ponder::testing::raw<std::uint8_t>(200));
  w.add_raw("a.i8", 1, ponder::testing::raw<std::int8_t>(-100));
  w.add_raw("a.u16", 2, ponder::testing::raw<std::uint16_t>(65535));
  w.add_raw("a.i16", 3, ponder::testing::raw<std::int16_t>(-30000));
  w.add_raw("a.i32", 5, ponder::testing::raw<std::int32_t>(-5));
  w.add_raw("a.u64", 10, ponder::testing::raw<std::uint64_t>(1ull << 63));
  w.add_raw("a.i64", 11, ponder::testing::raw<std::int64_t>(-(1ll << 40)));
  w.add_raw("a.f64", 12, ponder::testing::raw<double>(0.125));
  w.add_f32("a.f32", 0.5f);
  w.add_f32("a.nan", std::numeric_limits<float>::quiet_NaN());
  w.add_bool("a.bool", true);
  w.add_strings("a.strings", {"one", "", std::string("t\0w", 3)});
  w.add_i32s("a.i32s", {1, -2, 3});
  w.add_raw("a.bools", 9, ponder::testing::gguf_array(7, 3, std::string("\1\0\1", 3)));
  w.add_raw("a.f32s", 9, ponder::testing::gguf_array(6, 1, ponder::testing::raw(1.0f)));
  w.tensors.push_back({"x.weight", {4, 2}, 0, std::string(32, 'a')});
  w.tensors.push_back({"y.weight", {32, 3}, 8, std::string(102, 'b')});
  w.tensors.push_back({"z.weight", {256}, 16, std::string(66, 'c')});
  return w;
}

TEST(Gguf, GivesMetadataByType) {
  const MemoryFile file(sample_file().bytes());
  const auto gguf = Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  const Gguf& g = **gguf;
  EXPECT_EQ(g.string("general.architecture"), "test");
  EXPECT_EQ(g.integer("a.u8"), 200);
  EXPECT_EQ(g.integer("a.i8"), -100);
  EXPECT_EQ(g.integer("a.u16"), 65535);
  EXPECT_EQ(g.integer("a.i16"), -30000);
  EXPECT_EQ(g.integer("a.u32"), 4000000000);
  EXPECT_EQ(g.integer("a.i32"), -5);
  EXPECT_EQ(g.integer("a.i64"), -(1ll << 40));
  EXPECT_EQ(g.integer("a.u64"), std::nullopt) << "does not fit";
  EXPECT_EQ(g.number("a.f32"), 0.5);
  EXPECT_EQ(g.number("a.f64"), 0.125);
  EXPECT_EQ(g.number("a.i32"), -5.0);
  EXPECT_EQ(g.number("a.nan"), std::nullopt);
  EXPECT_EQ(g.boolean("a.bool"), true);
  EXPECT_EQ(g.strings("a.strings"), (std::vector<std::string>{"one", "", std::string("t\0w", 3)}));
  EXPECT_EQ(g.integers("a.i32s"), (std::vector<std::int64_t>{1, -2, 3}));
  EXPECT_EQ(g.integers("a.bools"), (std::vector<std::int64_t>{1, 0, 1}));
  EXPECT_EQ(g.array_length("a.strings"), 3u);
  EXPECT_EQ(g.keys().size(), 17u);
}

TEST(Gguf, NeverReadsAValueAsAnotherType) {
  const MemoryFile file(sample_file().bytes());
  const auto gguf = Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  const Gguf& g = **gguf;
  EXPECT_EQ(g.string("a.u32"), std::nullopt);
  EXPECT_EQ(g.string("a.strings"), std::nullopt);
  EXPECT_EQ(g.integer("general.architecture"), std::nullopt);
  EXPECT_EQ(g.integer("a.f32"), std::nullopt);
  EXPECT_EQ(g.integer("a.bool"), std::nullopt);
  EXPECT_EQ(g.integer("a.i32s"), std::nullopt);
  EXPECT_EQ(g.boolean("a.u8"), std::nullopt);
  EXPECT_EQ(g.number("a.bool"), std::nullopt);
  EXPECT_EQ(g.integers("a.f32s"), std::nullopt);
  EXPECT_EQ(g.integers("a.strings"), std::nullopt);
  EXPECT_EQ(g.strings("a.i32s"), std::nullopt);
  EXPECT_EQ(g.array_length("a.u32"), std::nullopt);
  EXPECT_EQ(g.integer("absent"), std::nullopt);
}

TEST(Gguf, GivesTensorsByNameAndTheirBytes) {
  const MemoryFile file(sample_file().bytes());
  const auto gguf = Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  const TensorInfo* y = (*gguf)->find("y.weight");
  ASSERT_NE(y, nullptr);
  EXPECT_EQ(y->type, kernels::DType::Q8_0);
  EXPECT_EQ(y->extents, (std::vector<std::uint64_t>{32, 3}));
  std::vector<std::byte> data(y->bytes);
  ASSERT_TRUE((*gguf)->read(*y, data));
  EXPECT_EQ(data, std::vector<std::byte>(102, std::byte{'b'}));
  EXPECT_FALSE((*gguf)->read(*y, std::span(data).first(101))) << "the size must be exact";
  EXPECT_EQ((*gguf)->find("absent"), nullptr);
}

TEST(Gguf, NamesTensorsThatThisBuildCannotCompute) {
  const MemoryFile file(sample_file().bytes());
  const auto gguf = Gguf::open(file.path());
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ((*gguf)->find("z.weight"), nullptr);
  ASSERT_EQ((*gguf)->foreign_tensors().size(), 1u);
  EXPECT_EQ((*gguf)->foreign_tensors()[0].name, "z.weight");
  EXPECT_EQ((*gguf)->foreign_tensors()[0].type, "IQ2_XXS");
}

TEST(Gguf, ReadsVersion2AndOtherAlignments) {
  for (const std::uint32_t alignment : {8u, 64u, 4096u}) {
    GgufWriter w = sample_file();
    w.version = 2;
    w.alignment = alignment;
    w.add_u32("general.alignment", alignment);
    const MemoryFile file(w.bytes());
    const auto gguf = Gguf::open(file.path());
    ASSERT_TRUE(gguf) << gguf.error().message;
    const TensorInfo* y = (*gguf)->find("y.weight");
    std::vector<std::byte> data(y->bytes);
    ASSERT_TRUE((*gguf)->read(*y, data));
    EXPECT_EQ(data[0], std::byte{'b'});
  }
}

TEST(Gguf, OpensTheBundledFiles) {
  for (const char* name : {"pebble-q8_0.gguf", "pebble-q4_k_m.gguf"}) {
    const auto gguf = Gguf::open(std::filesystem::path(PONDER_SOURCE_DIR) / "models/pebble" / name);
    ASSERT_TRUE(gguf) << gguf.error().message;
    EXPECT_EQ((*gguf)->tensors().size(), 123u);
    EXPECT_EQ((*gguf)->integer("qwen35.block_count"), 9);
    EXPECT_EQ((*gguf)->strings("tokenizer.ggml.tokens")->size(), 4096u);
    EXPECT_TRUE((*gguf)->string("tokenizer.chat_template")->starts_with("{%- macro text"));
  }
}

TEST(Gguf, SaysWhatIsNotThere) {
  const auto missing = Gguf::open("/nonexistent/model.gguf");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::model_missing);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);
  const auto folder = Gguf::open("/tmp");
  ASSERT_FALSE(folder);
  EXPECT_NE(folder.error().message.find("not a regular file"), std::string::npos);
}

TEST(Gguf, RefusesAFifoInsteadOfWaiting) {
  const auto dir = temp_dir("gguf-fifo");
  ASSERT_EQ(::mkfifo((dir / "m.gguf").c_str(), 0600), 0);
  EXPECT_FALSE(Gguf::open(dir / "m.gguf"));
  std::filesystem::remove_all(dir);
}

TEST(Gguf, NoticesAFileThatShrinksAfterOpening) {
  const auto dir = temp_dir("gguf-shrink");
  const auto path = dir / "m.gguf";
  sample_file().write(path);
  const auto gguf = Gguf::open(path);
  ASSERT_TRUE(gguf);
  std::filesystem::resize_file(path, 64);
  const TensorInfo* y = (*gguf)->find("y.weight");
  std::vector<std::byte> data(y->bytes);
  const auto read = (*gguf)->read(*y, data);
  ASSERT_FALSE(read);
  EXPECT_NE(read.error().message.find("became shorter"), std::string::npos);
  EXPECT_EQ((*gguf)->strings("a.strings"), std::nullopt);
  std::filesystem::remove_all(dir);
}

class SplitGguf : public ::testing::Test {
 protected:
  void SetUp() override { dir_ = temp_dir("gguf-split"); }
  void TearDown() override { std::filesystem::remove_all(dir_); }

  /// Three shards with one tensor each.
  void write(int number_of_second = 1, const char* name_of_third = "t2", int total = 3) {
    for (int i = 0; i < 3; ++i) {
      GgufWriter w;
      if (i == 0) w.add_string("general.architecture", "test");
      w.add_raw("split.no", 2, ponder::testing::raw<std::uint16_t>(i == 1 ? number_of_second : i));
      w.add_raw("split.count", 2, ponder::testing::raw<std::uint16_t>(3));
      w.add_raw("split.tensors.count", 5, ponder::testing::raw<std::int32_t>(total));
      const std::string name = i == 2 ? name_of_third : "t" + std::to_string(i);
      w.tensors.push_back({name, {8}, 0, std::string(32, static_cast<char>('0' + i))});
      w.write(shard(i));
    }
  }
  std::filesystem::path shard(int i) const {
    return dir_ / ("m-0000" + std::to_string(i + 1) + "-of-00003.gguf");
  }
  std::string refusal() const {
    const auto gguf = Gguf::open(shard(0));
    return gguf ? "" : gguf.error().message;
  }
  std::filesystem::path dir_;
};

TEST_F(SplitGguf, ReadsAsOne) {
  write();
  const auto gguf = Gguf::open(shard(0));
  ASSERT_TRUE(gguf) << gguf.error().message;
  EXPECT_EQ((*gguf)->tensors().size(), 3u);
  std::vector<std::byte> data(32);
  ASSERT_TRUE((*gguf)->read(*(*gguf)->find("t2"), data));
  EXPECT_EQ(data[0], std::byte{'2'});
  EXPECT_EQ((*gguf)->file_bytes(),
            3 * std::filesystem::file_size(shard(1)) +
                (std::filesystem::file_size(shard(0)) - std::filesystem::file_size(shard(1))));
}

TEST_F(SplitGguf, RefusesWhatDoesNotBelongTogether) {
  write(2);
  EXPECT_NE(refusal().find("is not part 2 of 3"), std::string::npos) << refusal();
  write(1, "t0");
  EXPECT_NE(refusal().find("t0 stands in two"), std::string::npos) << refusal();
  write(1, "t2", 4);
  EXPECT_NE(refusal().find("hold 3 tensors instead of 4"), std::string::npos) << refusal();
  write();
  const auto second = Gguf::open(shard(1));
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().message.find("not the first of its 3 files"), std::string::npos);
  std::filesystem::rename(shard(0), dir_ / "other.gguf");
  const auto renamed = Gguf::open(dir_ / "other.gguf");
  ASSERT_FALSE(renamed);
  EXPECT_NE(renamed.error().message.find("name does not end in"), std::string::npos);
  write();
  std::filesystem::remove(shard(2));
  EXPECT_NE(refusal().find("There is no model file"), std::string::npos) << refusal();
}

}  // namespace
}  // namespace ponder::artifact
