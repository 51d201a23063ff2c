// Decoding of stored blocks against values of an independent implementation (gguf-py), and of
// every packed layout against the stored blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

/// Block bytes b[i] = (73 i + 41) mod 256, d = 0.5, dmin or m = 0.25.
std::vector<std::byte> vector_block(DType type) {
  std::vector<std::byte> block(format(type).block_bytes);
  for (std::size_t i = 0; i < block.size(); ++i)
    block[i] = static_cast<std::byte>((73 * i + 41) % 256);
  const std::vector<std::size_t> scales = f16_scales_at(type);
  for (std::size_t i = 0; i < scales.size(); ++i)
    put_f16(block.data() + scales[i], i == 0 ? 0.5f : 0.25f);
  if (type == DType::MXFP4) block[0] = std::byte{126};
  if (type == DType::NVFP4) {
    constexpr unsigned kScales[4] = {0x38, 0x40, 0x30, 0x01};
    for (std::size_t i = 0; i < 4; ++i)
      block[i] = static_cast<std::byte>(kScales[i]);
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

struct KnownBlock {
  DType type;
  std::vector<Sample> samples;
  double sum, squares;
};
const KnownBlock kKnownBlocks[] = {
    {DType::Q8_0, {{0, -34.5f}, {1, 2}, {15, 1}, {16, 37.5f}, {31, -55}}, -24, 43036},
    {DType::Q4_0, {{0, 1.5f}, {1, -2}, {15, -3}, {16, 1.5f}, {31, -4}}, -16.5, 180.25},
    {DType::Q4_1, {{0, 6.75f}, {1, 3.25f}, {15, 2.25f}, {16, 2.25f}, {31, 4.75f}}, 120.5, 612.5},
    {DType::Q5_0, {{0, 7.5f}, {1, 4}, {15, -5}, {16, 6.5f}, {31, 1}}, -22.5, 925.25},
    {DType::Q5_1, {{0, 8.75f}, {1, 5.25f}, {15, 12.25f}, {16, 11.75f}, {31, 5.75f}}, 258.5, 2648.5},
    {DType::Q2_K, {{0, 4}, {1, 8.5f}, {33, -2.75f}, {130, -0.25f}, {255, -1.75f}}, 1021.5, 12473.5},
    {DType::Q3_K, {{0, -3.5f}, {1, 7}, {33, 0}, {130, -12}, {255, -12}}, 117, 102658.5},
    {DType::Q4_K,
     {{0, 46.25f}, {1, 0.75f}, {33, -14.5f}, {130, 109.25f}, {255, -5.75f}},
     26676,
     5510913},
    {DType::Q5_K,
     {{0, 150.25f}, {1, 0.75f}, {33, 183.5f}, {130, 109.25f}, {255, -5.75f}},
     55036,
     23305097},
    {DType::Q6_K, {{0, 80.5f}, {1, -23}, {33, -1845}, {130, 661.5f}, {255, 144}}, -7422, 124143365},
    {DType::IQ4_NL, {{0, 19}, {1, -24.5f}, {15, -41.5f}, {16, 19}, {31, -63.5f}}, -240.5, 38531.75},
    {DType::IQ4_XS,
     {{0, -1508}, {1, 362.5f}, {33, 50}, {130, 552.5f}, {255, -375}},
     -3225,
     113442864},
    {DType::MXFP4, {{0, 0.5f}, {1, -0.75f}, {15, -0.25f}, {16, 3}, {31, -0.75f}}, 6.25, 70.0625},
    {DType::NVFP4,
     {{0, -3}, {1, 4}, {17, -8}, {33, 2}, {63, 0.001953125f}},
     15.517578125,
     637.500389},
};

TEST(Decode, BlocksHaveTheReferenceValues) {
  std::size_t quantised = 0;
  for (const DType type : all_types())
    if (format(type).block_elements > 1) ++quantised;
  EXPECT_EQ(std::size(kKnownBlocks), quantised);
  for (const KnownBlock& known : kKnownBlocks) {
    SCOPED_TRACE(format(known.type).name);
    expect_block(known.type, known.samples, known.sum, known.squares);
  }
}

/// tests/golden/quant/make_blocks.py: random blocks, edges of every scale.
TEST(Decode, GoldenBlocksAreBitEqual) {
  std::ifstream in(PONDER_SOURCE_DIR "/tests/golden/quant/blocks.bin", std::ios::binary);
  ASSERT_TRUE(in);
  std::size_t formats = 0;
  for (std::uint32_t head[2]; in.read(reinterpret_cast<char*>(head), sizeof head); ++formats) {
    const std::optional<DType> type = dtype_of_gguf(head[0]);
    ASSERT_TRUE(type) << head[0];
    SCOPED_TRACE(format(*type).name);
    std::vector<std::byte> blocks(head[1] * format(*type).block_bytes);
    std::vector<float> want(head[1] * format(*type).block_elements), got(want.size());
    in.read(reinterpret_cast<char*>(blocks.data()), static_cast<std::streamsize>(blocks.size()));
    in.read(reinterpret_cast<char*>(want.data()), static_cast<std::streamsize>(want.size() * 4));
    ASSERT_TRUE(in);
    decode(*type, blocks.data(), static_cast<std::int64_t>(got.size()), got.data());
    for (std::size_t i = 0; i < want.size(); ++i)
      ASSERT_EQ(bits_of_float(got[i]), bits_of_float(want[i]))
          << "element " << i << ": " << got[i] << " instead of " << want[i];
  }
  EXPECT_EQ(formats, std::size(kKnownBlocks));
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

TEST_P(PackedLayout, ScaleMultipliesEveryElement) {
  const DType type = GetParam();
  PackedWeight packed(type, 16, 256, random_rows(type, 16, 256, 13));
  std::vector<float> want(256), got(256);
  packed.weight.decode_row(5, want.data());
  packed.weight.scale = 0.37f;
  packed.weight.decode_row(5, got.data());
  for (float& v : want)
    v *= 0.37f;
  EXPECT_TRUE(same_bits(want, got));
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
