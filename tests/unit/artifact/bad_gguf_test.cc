// Hostile files: every one is refused with a sentence or gives a directory whose every range lies
// inside the file, and no lie makes the reader reserve memory that the file could not fill.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "engine/artifact/gguf.h"
#include "tests/support/allocations.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/memory_file.h"

namespace ponder::artifact {
namespace {

using ponder::testing::gguf_array;
using ponder::testing::gguf_string;
using ponder::testing::GgufWriter;
using ponder::testing::MemoryFile;
using ponder::testing::raw;

/// A small file with every kind of value and three tensors.
GgufWriter sound() {
  GgufWriter w;
  w.add_string("general.architecture", "qwen35");
  w.add_u32("general.alignment", 32);
  w.add_f32("x.epsilon", 1e-6f);
  w.add_bool("x.flag", true);
  w.add_strings("x.tokens", {"a", "bc", "def"});
  w.add_i32s("x.types", {1, 1, 3});
  w.add_raw("x.bools", 9, gguf_array(7, 2, std::string("\1\0", 2)));
  w.tensors.push_back({"a.weight", {8, 4}, 0, std::string(128, '\1')});
  w.tensors.push_back({"b.weight", {32, 2}, 8, std::string(68, '\2')});
  w.tensors.push_back({"c.weight", {256}, 12, std::string(144, '\3')});
  return w;
}

/// The refusal's message, or "" when the file is accepted, in which case all that it says is used.
std::string open_and_use(std::string_view bytes, std::size_t file_size = 0) {
  const MemoryFile file(bytes, file_size);
  const std::uint64_t size = std::max(bytes.size(), file_size);
  ponder::testing::reset_largest_allocation();
  const auto gguf = Gguf::open(file.path());
  // a fixed buffer, or something in proportion to the file
  EXPECT_LE(ponder::testing::largest_allocation(), 65536 + 4 * size);
  if (!gguf) {
    const std::string& message = gguf.error().message;
    EXPECT_NE(message.find("is not usable: "), std::string::npos) << message;
    EXPECT_TRUE(message.ends_with(".")) << message;
    EXPECT_LT(message.size(), 2000u) << message;
    EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 0) << message;
    return message;
  }
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  for (const TensorInfo& info : (*gguf)->tensors()) {
    EXPECT_LE(info.bytes, size);
    EXPECT_LE(info.offset, size - info.bytes);
    std::uint64_t elements = 1;
    for (const std::uint64_t extent : info.extents)
      elements *= extent;
    const auto& format = kernels::format(info.type);
    EXPECT_EQ(elements / format.block_elements * format.block_bytes, info.bytes);
    ranges.emplace_back(info.offset, info.offset + info.bytes);
    std::vector<std::byte> data(info.bytes);
    EXPECT_TRUE((*gguf)->read(info, data).has_value());
  }
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    EXPECT_LE(ranges[i - 1].second, ranges[i].first);
  for (const std::string& key : (*gguf)->keys()) {
    (void)(*gguf)->string(key);
    (void)(*gguf)->integer(key);
    (void)(*gguf)->number(key);
    (void)(*gguf)->boolean(key);
    (void)(*gguf)->strings(key);
    (void)(*gguf)->integers(key);
  }
  return "";
}

struct Lie {
  const char* name;
  std::string bytes;
  const char* expected;  ///< part of the sentence
};

template <class Change>
std::string changed(Change change) {
  GgufWriter w = sound();
  change(w);
  return w.bytes();
}

std::string patched(std::size_t at, std::string_view bytes) {
  std::string file = sound().bytes();
  return file.replace(at, bytes.size(), bytes);
}

std::vector<Lie> lies() {
  static constexpr std::uint64_t kHuge = 1ull << 62;
  const auto with_pair = [](std::string_view key, std::uint32_t type, std::string bytes) {
    return changed([&](GgufWriter& w) { w.add_raw(key, type, bytes); });
  };
  const auto with_tensor = [](ponder::testing::GgufTensor tensor) {
    return changed([&](GgufWriter& w) { w.tensors.push_back(tensor); });
  };
  std::vector<Lie> out = {
      {"empty file", "", "only 0 bytes"},
      {"bad magic", patched(0, "GGML"), "not a GGUF file"},
      {"version 0", patched(4, raw<std::uint32_t>(0)), "version is 0"},
      {"version 1", patched(4, raw<std::uint32_t>(1)), "GGUF version 1"},
      {"version 4", patched(4, raw<std::uint32_t>(4)), "GGUF version 4"},
      {"big-endian", patched(4, raw<std::uint32_t>(0x03000000)), "big-endian"},
      {"tensors 2^62", changed([](auto& w) { w.tensor_count = kHuge; }), "claims"},
      {"tensors -1", changed([](auto& w) { w.tensor_count = ~0ull; }), "claims"},
      {"tensors one more", changed([](auto& w) { w.tensor_count = 4; }), ""},
      {"pairs 2^62", changed([](auto& w) { w.pair_count = kHuge; }), "metadata pairs"},
      {"pairs -1", changed([](auto& w) { w.pair_count = ~0ull; }), "metadata pairs"},
      {"pairs one more", changed([](auto& w) { w.pair_count = 8; }), ""},
      {"pairs one less", changed([](auto& w) { w.pair_count = 6; }), ""},
      {"key longer than the file", patched(24, raw<std::uint64_t>(1 << 20)),
       "claims 1048576 bytes"},
      {"key length 2^64-1", patched(24, raw<std::uint64_t>(~0ull)), "claims"},
      {"key too long", with_pair(std::string(2000, 'k'), 4, raw(1)), "the limit is 1024"},
      {"empty key", with_pair("", 4, raw(1)), "empty"},
      {"key with a newline", with_pair("a\nb", 4, raw(1)), "not printable"},
      {"duplicate key", with_pair("x.flag", 7, raw<std::uint8_t>(0)), "stands twice"},
      {"value type 13", with_pair("k", 13, raw<std::uint64_t>(0)), "unknown value type 13"},
      {"value type -1", with_pair("k", ~0u, raw<std::uint64_t>(0)), "unknown value type"},
      {"truth value 2", with_pair("k", 7, raw<std::uint8_t>(2)), "neither 0 nor 1"},
      {"string 2^63", with_pair("k", 8, raw<std::uint64_t>(1ull << 63)), "claims"},
      {"array of unknown type", with_pair("k", 9, gguf_array(99, 1, "xxxx")),
       "unknown element type 99"},
      {"array of arrays", with_pair("k", 9, gguf_array(9, 1, gguf_array(4, 0, ""))),
       "array of arrays"},
      {"array 2^62", with_pair("k", 9, gguf_array(4, kHuge, "xxxx")), "claims"},
      {"array count times size wraps",
       with_pair("k", 9, gguf_array(10, (1ull << 61) + 1, "12345678")), "claims"},
      {"strings 2^61", with_pair("k", 9, gguf_array(8, 1ull << 61, "")), "claims"},
      {"string in array too long", with_pair("k", 9, gguf_array(8, 1, raw<std::uint64_t>(~0ull))),
       "claims"},
      {"alignment of another type",
       [] {
         GgufWriter w;
         w.add_raw("general.alignment", 10, raw<std::uint64_t>(32));
         return w.bytes();
       }(),
       "not a 32-bit"},
      {"name longer than 64", with_tensor({std::string(65, 'n'), {8}, 0, std::string(32, 'x')}),
       "the limit is 64"},
      {"empty name", with_tensor({"", {8}, 0, std::string(32, 'x')}), "empty"},
      {"duplicate name", with_tensor({"a.weight", {8}, 0, std::string(32, 'x')}), "stands twice"},
      {"no dimensions", with_tensor({"d", {}, 0, std::string(32, 'x')}), "0 dimensions"},
      {"five dimensions", with_tensor({"d", {1, 1, 1, 1, 8}, 0, std::string(32, 'x')}),
       "5 dimensions"},
      {"extent 0", with_tensor({"d", {8, 0}, 0, std::string(32, 'x')}), "extent 0"},
      {"extent -1", with_tensor({"d", {8, ~0ull}, 0, std::string(32, 'x')}), "extent -1"},
      {"elements overflow", with_tensor({"d", {1ull << 32, 1ull << 32}, 0, std::string(32, 'x')}),
       "overflows"},
      {"elements wrap to 1",
       with_tensor({"d", {0x100000001, 0xffffffff, 3, 5}, 0, std::string(32, 'x')}), "overflows"},
      {"bytes overflow", with_tensor({"d", {1ull << 31, 1ull << 31}, 0, std::string(32, 'x')}),
       "overflows"},
      {"larger than the file", with_tensor({"d", {1ull << 30}, 0, std::string(32, 'x')}),
       "past the end"},
      {"rows of part blocks", with_tensor({"d", {48}, 8, std::string(64, 'x')}),
       "no multiple of the 32"},
      {"removed type 4", with_tensor({"d", {32}, 4, std::string(32, 'x')}), "type id 4"},
      {"removed type 36", with_tensor({"d", {32}, 36, std::string(32, 'x')}), "type id 36"},
      {"type 42", with_tensor({"d", {32}, 42, std::string(32, 'x')}), "type id 42"},
      {"type -1", with_tensor({"d", {32}, ~0u, std::string(32, 'x')}), "type id"},
      {"unaligned", with_tensor({"d", {8}, 0, std::string(64, 'x'), 392}), "not aligned"},
      {"offset 2^63", with_tensor({"d", {8}, 0, std::string(32, 'x'), 1ull << 63}), "past the end"},
      {"offset wraps", with_tensor({"d", {8}, 0, std::string(32, 'x'), ~0ull - 31}),
       "past the end"},
      {"overlap", with_tensor({"d", {8}, 0, std::string(32, 'x'), 64}), "overlap"},
      {"same place", with_tensor({"d", {8}, 0, std::string(32, 'x'), 0}), "overlap"},
  };
  for (const std::uint32_t alignment : {0u, 3u, 48u, 1u << 21, 0x80000000u, ~0u}) {
    GgufWriter w;
    w.add_u32("general.alignment", alignment);
    w.tensors.push_back({"a", {8}, 0, std::string(32, 'x')});
    out.push_back({"alignment", w.bytes(), "power of two"});
  }
  return out;
}

TEST(BadGguf, SoundFileIsAccepted) {
  EXPECT_EQ(open_and_use(sound().bytes()), "");
}

TEST(BadGguf, EachLieIsNamed) {
  for (const Lie& lie : lies()) {
    const std::string message = open_and_use(lie.bytes);
    EXPECT_NE(message, "") << lie.name;
    EXPECT_NE(message.find(lie.expected), std::string::npos) << lie.name << ": " << message;
  }
}

TEST(BadGguf, EveryTruncationIsRefused) {
  const std::string file = sound().bytes();
  // the padding after the last tensor carries nothing
  const std::size_t needed = file.size() - 16;
  for (std::size_t size = 0; size < needed; ++size)
    EXPECT_NE(open_and_use(file.substr(0, size)), "") << size;
  EXPECT_EQ(open_and_use(file.substr(0, needed)), "");
}

TEST(BadGguf, EveryByteFlipIsRefusedOrStaysInside) {
  const std::string file = sound().bytes();
  std::mt19937 random(1);
  int refused = 0;
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (const int kind : {0, 1, 2}) {
      std::string bad = file;
      if (kind == 0) bad[at] = static_cast<char>(bad[at] ^ (1 << random() % 8));
      if (kind == 1) bad[at] = '\xff';
      if (kind == 2) bad[at] = static_cast<char>(random());
      refused += !open_and_use(bad).empty();
    }
  }
  EXPECT_GT(refused, 500);
}

TEST(BadGguf, EightByteWordsAnywhereAreRefusedOrStayInside) {
  const std::string file = sound().bytes();
  for (std::size_t at = 0; at + 8 <= file.size(); at += 1)
    for (const std::uint64_t word : {0ull, ~0ull, 1ull << 63, 1ull << 32, 0x7fffffffffffffffull})
      open_and_use(std::string(file).replace(at, 8, raw(word)));
}

TEST(BadGguf, DamagedHeadsOfTheBundledFileAreRefusedOrStayInside) {
  const std::string whole = ponder::testing::read_file(std::filesystem::path(PONDER_SOURCE_DIR) /
                                                       "models/pebble/pebble-q4_k_m.gguf");
  const std::string head = whole.substr(0, 140000);
  std::mt19937 random(2);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    std::string bad = head;
    // half of the flips in the tensor list, which is the last 8 KiB of the head
    const std::size_t at = i % 2 ? random() % 130000 : 130000 + random() % 7760;
    for (int bytes = 1 + i % 3; bytes > 0; --bytes)
      bad[at + bytes] = static_cast<char>(random());
    refused += !open_and_use(bad, whole.size()).empty();
  }
  EXPECT_GT(refused, 50);
  for (int i = 0; i < 60; ++i)
    EXPECT_NE(open_and_use(head.substr(0, random() % head.size())), "");
}

}  // namespace
}  // namespace ponder::artifact
