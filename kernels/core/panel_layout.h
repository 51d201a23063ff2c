#pragma once
// Where things lie in a packed panel of 16 rows; picture in docs/kernels.md. A panel is a body for
// each block and then a tail for each block, both strides below; what is 64-byte aligned in a body
// or not large goes there, odd-sized scales go to the tail. A part of a block is `bytes` bytes of
// each row in units of 1, 2 or 4 bytes: unit i of row r lies at (16 i + r) units. Units of 4 are
// "dword-interleaved": one 64-byte load holds the same four columns of 16 rows.
//
// "Staged" is the stored block with its fields in the form the products want (weight.cc: scales of
// 6 bits in bytes of their own, say); most formats are staged as they are stored.
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/quant/formats.h"

namespace ponder::kernels::layout {

inline constexpr std::size_t kRows = 16;

// Offsets in a body that the products use too. All formats: codes at 0.
inline constexpr int kFourBitCodes = 256;  // 32 columns of nibbles: the body of Q4_0 and others
inline constexpr int kQ5HighBits = 256;    // Q5_0, Q5_1: a dword of fifth bits after the nibbles
inline constexpr int kQ5SmallBytes = 320;

inline constexpr int kQ2Scales = 1024;  // u8 [16][16], then f16 d[16], dmin[16]
inline constexpr int kQ2D = 1280;
inline constexpr int kQ2Bytes = 1344;

inline constexpr int kQ3High = 1024;  // hmask
inline constexpr int kQ3Bytes = 1536;
inline constexpr int kQ3ScalesHigh = 128;  // in the tail: u8 [8][16], u8 [4][16], f16 d[16]
inline constexpr int kQ3D = 192;
inline constexpr int kQ3Tail = 224;

// Q4_K and Q5_K: qs; Q5_K's qh; scales u8 [8][16]; minima u8 [8][16]; f16 d[16]; f16 dmin[16].
inline constexpr int kQ4Scales = 2048;
inline constexpr int kQ5High = 2048;
inline constexpr int kQ5Scales = 2560;
inline constexpr int kMinsAfterScales = 128;
inline constexpr int kDAfterScales = 256;
inline constexpr int kQ4Bytes = kQ4Scales + 320;
inline constexpr int kQ5Bytes = kQ5Scales + 320;

inline constexpr int kQ6High = 2048;
inline constexpr int kQ6Scales = 3072;  // i8 [16][16]
inline constexpr int kQ6D = 3328;
inline constexpr int kQ6Bytes = 3392;  // with 32 bytes of padding

inline constexpr int kIq4Scales = 2048;  // i8 [8][16]
inline constexpr int kIq4D = 2176;
inline constexpr int kIq4Bytes = 2240;  // with 32 bytes of padding

struct Part {
  int unit;   // 4, 2 or 1; 0: no part
  int from;   // in the staged block
  int bytes;  // of one row
  int to;     // in the body or tail
  bool tail = false;
};

struct Panel {
  DType type;
  int body, tail;  // bytes of 16 rows for one block
  Part parts[4];
};

/// In the order of formats.inc.
inline constexpr Panel kPanels[] = {
    {DType::F32, 64, 0, {{4, 0, 4, 0}}},
    {DType::F16, 32, 0, {{2, 0, 2, 0}}},
    {DType::Q4_0, kFourBitCodes, 32, {{4, 2, 16, 0}, {2, 0, 2, 0, true}}},
    {DType::Q4_1, kFourBitCodes, 64, {{4, 4, 16, 0}, {2, 0, 4, 0, true}}},
    {DType::Q5_0, kQ5SmallBytes, 32, {{4, 6, 16, 0}, {4, 2, 4, kQ5HighBits}, {2, 0, 2, 0, true}}},
    {DType::Q5_1, kQ5SmallBytes, 64, {{4, 8, 16, 0}, {4, 4, 4, kQ5HighBits}, {2, 0, 4, 0, true}}},
    {DType::Q8_0, 512, 32, {{4, 2, 32, 0}, {2, 0, 2, 0, true}}},
    {DType::Q2_K, kQ2Bytes, 0, {{4, 16, 64, 0}, {1, 0, 16, kQ2Scales}, {2, 80, 4, kQ2D}}},
    {DType::Q3_K,
     kQ3Bytes,
     kQ3Tail,
     {{4, 32, 64, 0}, {4, 0, 32, kQ3High}, {1, 96, 12, 0, true}, {2, 108, 2, kQ3D, true}}},
    {DType::Q4_K,
     kQ4Bytes,
     0,
     {{4, 20, 128, 0}, {1, 4, 16, kQ4Scales}, {2, 0, 4, kQ4Scales + kDAfterScales}}},
    {DType::Q5_K,
     kQ5Bytes,
     0,
     {{4, 52, 128, 0},
      {4, 20, 32, kQ5High},
      {1, 4, 16, kQ5Scales},
      {2, 0, 4, kQ5Scales + kDAfterScales}}},
    {DType::Q6_K,
     kQ6Bytes,
     0,
     {{4, 0, 128, 0}, {4, 128, 64, kQ6High}, {1, 192, 16, kQ6Scales}, {2, 208, 2, kQ6D}}},
    {DType::IQ4_NL, kFourBitCodes, 32, {{4, 2, 16, 0}, {2, 0, 2, 0, true}}},
    {DType::IQ4_XS, kIq4Bytes, 0, {{4, 10, 128, 0}, {1, 2, 8, kIq4Scales}, {2, 0, 2, kIq4D}}},
    {DType::BF16, 32, 0, {{2, 0, 2, 0}}},
    {DType::MXFP4, kFourBitCodes, 16, {{4, 1, 16, 0}, {1, 0, 1, 0, true}}},
    {DType::NVFP4, 2 * kFourBitCodes, 64, {{4, 4, 32, 0}, {1, 0, 4, 0, true}}},
};

constexpr const Panel& panel(DType type) {
  return kPanels[static_cast<std::size_t>(type)];
}

constexpr std::size_t panel_bytes(DType type, std::int64_t cols) {
  const auto blocks = static_cast<std::size_t>(cols) / format(type).block_elements;
  const auto block = static_cast<std::size_t>(panel(type).body + panel(type).tail);
  return (blocks * block + 63) / 64 * 64;
}

constexpr bool in_the_order_of_the_formats() {
  for (std::size_t i = 0; i < std::size(kPanels); ++i)
    if (kPanels[i].type != static_cast<DType>(i)) return false;
  return std::size(kPanels) == std::size(kFormats);
}
static_assert(in_the_order_of_the_formats());

}  // namespace ponder::kernels::layout
