// Decoding of stored blocks against values of an independent implementation (gguf-py), and of
// every packed layout against the stored blocks.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

/// Block bytes b[i] = (73 i + 41) mod 256, d = 0.5, dmin = 0.25.
std::vector<std::byte> vector_block(DType type) {
  std::vector<std::byte> block(format(type).block_bytes);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>((73 * i + 41) % 256);
  switch (type) {
    case DType::Q8_0:
      put_f16(block.data(), 0.5f);
      break;
    case DType::Q6_K:
      put_f16(block.data() + 208, 0.5f);
      break;
    default:
      put_f16(block.data(), 0.5f);
      put_f16(block.data() + 2, 0.25f);
  }
  return block;
}

struct Sample {
  std::size_t index;
  float value;
};

void expect_block(DType type, const std::vector<Sample>& samples, double sum, double squares) {
  const std::vector<std::byte> block = vector_block(type);
  std::vector<float> x(format(type).block_elements);
  decode(type, block.data(), static_cast<std::int64_t>(x.size()), x.data());
  for (const Sample& sample : samples)
    EXPECT_EQ(x[sample.index], sample.value) << sample.index;
  double s = 0, q = 0;
  for (const float v : x) {
    s += static_cast<double>(v);
    q += static_cast<double>(v) * static_cast<double>(v);
  }
  EXPECT_EQ(s, sum);
  EXPECT_NEAR(q, squares, squares * 1e-8);
}

TEST(Decode, Q8_0BlockHasTheReferenceValues) {
  expect_block(DType::Q8_0, {{0, -34.5f}, {1, 2}, {15, 1}, {16, 37.5f}, {31, -55}}, -24, 43036);
}
TEST(Decode, Q4_KBlockHasTheReferenceValues) {
  expect_block(DType::Q4_K, {{0, 46.25f}, {1, 0.75f}, {33, -14.5f}, {130, 109.25f}, {255, -5.75f}},
               26676, 5510913);
}
TEST(Decode, Q5_KBlockHasTheReferenceValues) {
  expect_block(DType::Q5_K, {{0, 150.25f}, {1, 0.75f}, {33, 183.5f}, {130, 109.25f}, {255, -5.75f}},
               55036, 23305097);
}
TEST(Decode, Q6_KBlockHasTheReferenceValues) {
  expect_block(DType::Q6_K, {{0, 80.5f}, {1, -23}, {33, -1845}, {130, 661.5f}, {255, 144}}, -7422,
               124143365);
}

TEST(Float, EveryF16ConvertsToItsValueAndBack) {
  for (std::uint32_t h = 0; h < 65536; ++h) {
    const float value = f32_of_f16(static_cast<std::uint16_t>(h));
    const int exponent = static_cast<int>((h >> 10) & 31u), fraction = static_cast<int>(h & 1023u);
    if (exponent == 31) {
      EXPECT_TRUE(fraction == 0 ? std::isinf(value) : std::isnan(value)) << h;
    } else {
      const double magnitude =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(static_cast<double>(value), (h & 0x8000u) != 0 ? -magnitude : magnitude) << h;
      ASSERT_EQ(f16_of_f32(value), h);
    }
  }
}

TEST(Float, F16RoundsToNearestEven) {
  // Between each two neighbours: below the middle down, above it up, in the middle to even.
  for (std::uint32_t h = 0; h < 0x7bffu; ++h) {
    const float low = f32_of_f16(static_cast<std::uint16_t>(h));
    const float high = f32_of_f16(static_cast<std::uint16_t>(h + 1));
    const float middle = low + (high - low) / 2;
    ASSERT_EQ(f16_of_f32(std::nextafterf(middle, low)), h);
    ASSERT_EQ(f16_of_f32(std::nextafterf(middle, high)), h + 1);
    ASSERT_EQ(f16_of_f32(middle), h % 2 == 0 ? h : h + 1);
    ASSERT_EQ(f16_of_f32(-middle), (h % 2 == 0 ? h : h + 1) | 0x8000u);
  }
  EXPECT_EQ(f16_of_f32(65519.0f), 0x7bff);
  EXPECT_EQ(f16_of_f32(65520.0f), 0x7c00);
  EXPECT_EQ(f16_of_f32(INFINITY), 0x7c00);
  EXPECT_EQ(f16_of_f32(NAN) & 0x7c00, 0x7c00);
  EXPECT_NE(f16_of_f32(NAN) & 0x03ff, 0);
}

class PackedLayout : public ::testing::TestWithParam<DType> {};

TEST_P(PackedLayout, DecodesEveryRowToTheStoredBits) {
  const DType type = GetParam();
  const std::int64_t cols = format(type).block_elements == 1 ? 37 : 2 * format(type).block_elements;
  for (const std::int64_t rows : {1, 15, 16, 17, 33}) {
    const std::vector<std::byte> source = random_rows(type, rows, cols, 7);
    const PackedWeight packed(type, rows, cols, source);
    std::vector<float> want(static_cast<std::size_t>(cols)), got(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < rows; ++r) {
      decode(type,
             source.data() + static_cast<std::size_t>(r) * Weight::source_row_bytes(type, cols),
             cols, want.data());
      packed.weight.decode_row(r, got.data());
      ASSERT_TRUE(same_bits(want, got)) << "row " << r << " of " << rows;
    }
  }
}

TEST_P(PackedLayout, KeepsTheBlocksOfCompletelyRandomBytes) {
  // Also infinite and NaN scales must come through as they are stored.
  const DType type = GetParam();
  const std::int64_t cols = 4 * 256;
  std::vector<std::byte> source(Weight::source_row_bytes(type, cols) * 16);
  std::mt19937 random(11);
  for (std::byte& b : source)
    b = static_cast<std::byte>(random() & 255u);
  const PackedWeight packed(type, 16, cols, source);
  std::vector<float> want(cols), got(cols);
  for (std::int64_t r = 0; r < 16; ++r) {
    decode(type, source.data() + static_cast<std::size_t>(r) * Weight::source_row_bytes(type, cols),
           cols, want.data());
    packed.weight.decode_row(r, got.data());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_TRUE((std::isnan(want[i]) && std::isnan(got[i])) ||
                  bits_of_float(want[i]) == bits_of_float(got[i]));
  }
}

TEST_P(PackedLayout, IsTheSameWhateverSlabsItWasPackedFrom) {
  const DType type = GetParam();
  const std::int64_t cols = 512, rows = 75;
  const std::vector<std::byte> source = random_rows(type, rows, cols, 3);
  const PackedWeight whole(type, rows, cols, source);
  const std::size_t bytes = Weight::packed_bytes(type, rows, cols);
  Arena arena = Arena::make(bytes).value();
  std::byte* memory = arena.take(bytes);
  const std::size_t row_bytes = Weight::source_row_bytes(type, cols);
  for (const std::int64_t first : {64, 0, 32})
    pack_rows(Weight{type, rows, cols, memory}, memory, first, first == 64 ? 11 : 32,
              source.data() + static_cast<std::size_t>(first) * row_bytes);
  EXPECT_EQ(std::memcmp(memory, whole.weight.data, bytes), 0);
}

TEST_P(PackedLayout, GrowsByAtMostThreePercent) {
  const DType type = GetParam();
  const double stored = static_cast<double>(Weight::source_row_bytes(type, 1024) * 64);
  EXPECT_LE(static_cast<double>(Weight::packed_bytes(type, 64, 1024)), stored * 1.03);
}

INSTANTIATE_TEST_SUITE_P(AllTypes, PackedLayout, ::testing::ValuesIn(all_types()),
                         [](const auto& p) { return std::string(format(p.param).name); });

}  // namespace
}  // namespace ponder::kernels
