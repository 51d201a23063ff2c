#pragma once
// Where things lie in a packed panel of 16 rows; picture in docs/kernels.md. A panel is block after
// block, and a block lies in the order in which its product reads it: weights come from memory at
// the speed of plain reading only as one sequential stream (with codes and high bits, or codes and
// scales, apart it was a third to a half of that).
//
// A part of a block is `bytes` bytes of each row in units of 1, 2 or 4 bytes: unit i of row r lies
// at (16 i + r) units (or at i steps and r units). Units of 4 are "dword-interleaved": one 64-byte
// load holds the same four columns of 16 rows. "Staged" is the stored block with its fields in the
// form the products want (weight.cc: scales of 6 bits in bytes of their own, say); most formats are
// staged as they are stored.
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "kernels/quant/formats.h"

namespace ponder::kernels::layout {

inline constexpr std::size_t kRows = 16;

// Offsets in a block that the products use too; without an offset, it begins there.
inline constexpr int kNibbles = 256;   // 32 columns of nibbles; what comes next in Q4_0 and others
inline constexpr int kFiveBits = 320;  // 32 columns of nibbles and a dword of fifth bits
inline constexpr int kQ8D = 512;
inline constexpr int kQ8Bytes = 544;

// NVFP4: scales u8 [4][16]; nibbles.
inline constexpr int kNvCodes = 64;
inline constexpr int kNvBytes = kNvCodes + 2 * kNibbles;

// Q2_K: f16 d[16], dmin[16]; scale bytes u8 [16][16]; qs.
inline constexpr int kQ2Scales = 64;
inline constexpr int kQ2Codes = 320;
inline constexpr int kQ2Bytes = kQ2Codes + 1024;

// Q3_K: f16 d[16]; scales u8 [8][16] and their high bits u8 [4][16]; the first half of qs
// interleaved with hmask, a line of 64 bytes of this, a line of that; the second half.
inline constexpr int kQ3Scales = 32;
inline constexpr int kQ3ScalesHigh = 160;
inline constexpr int kQ3Codes = 224;
inline constexpr int kQ3High = kQ3Codes + 64;
inline constexpr int kQ3Rest = kQ3Codes + 1024;
inline constexpr int kQ3Bytes = kQ3Rest + 512;

// Q4_K and Q5_K: f16 d[16], dmin[16]; scales u8 [8][16]; minima u8 [8][16]; qs, 512 bytes for each
// two sub-blocks. Q5_K's first 512 are interleaved with qh by lines.
inline constexpr int kKScales = 64;
inline constexpr int kKMins = 192;
inline constexpr int kKCodes = 320;
inline constexpr int kQ4Bytes = kKCodes + 2048;
inline constexpr int kQ5High = kKCodes + 64;
inline constexpr int kQ5Rest = kKCodes + 1024;
inline constexpr int kQ5Bytes = kQ5Rest + 1536;

// Q6_K: f16 d[16] and 32 bytes of padding, then for each half scales i8 [8][16], quarters 0 and 2
// of ql interleaved with qh by lines, quarters 1 and 3 of ql.
inline constexpr int kQ6Half = 64;
inline constexpr int kQ6Codes = 128;  // from the half
inline constexpr int kQ6High = kQ6Codes + 64;
inline constexpr int kQ6Odd = kQ6Codes + 1024;
inline constexpr int kQ6HalfBytes = kQ6Odd + 512;
inline constexpr int kQ6Bytes = kQ6Half + 2 * kQ6HalfBytes;

// IQ4_XS: f16 d[16] and 32 bytes of padding; scales i8 [8][16]; nibbles.
inline constexpr int kIq4Scales = 64;
inline constexpr int kIq4Codes = 192;
inline constexpr int kIq4Bytes = kIq4Codes + 2048;

struct Part {
  int unit;      // 4, 2 or 1; 0: no part
  int from;      // in the staged block
  int bytes;     // of one row
  int to;        // in the packed block
  int step = 0;  // bytes from unit to unit; 0: 16 units
};

struct Panel {
  DType type;
  int bytes;  // of a block of 16 rows
  Part parts[9];
};

/// In the order of formats.inc.
inline constexpr Panel kPanels[] = {
    {DType::F32, 64, {{4, 0, 4, 0}}},
    {DType::F16, 32, {{2, 0, 2, 0}}},
    {DType::Q4_0, kNibbles + 32, {{4, 2, 16, 0}, {2, 0, 2, kNibbles}}},
    {DType::Q4_1, kNibbles + 64, {{4, 4, 16, 0}, {2, 0, 4, kNibbles}}},
    {DType::Q5_0, kFiveBits + 32, {{4, 6, 16, 0}, {4, 2, 4, kNibbles}, {2, 0, 2, kFiveBits}}},
    {DType::Q5_1, kFiveBits + 64, {{4, 8, 16, 0}, {4, 4, 4, kNibbles}, {2, 0, 4, kFiveBits}}},
    {DType::Q8_0, kQ8Bytes, {{4, 2, 32, 0}, {2, 0, 2, kQ8D}}},
    {DType::Q2_K, kQ2Bytes, {{2, 80, 4, 0}, {1, 0, 16, kQ2Scales}, {4, 16, 64, kQ2Codes}}},
    {DType::Q3_K,
     kQ3Bytes,
     {{2, 108, 2, 0},
      {1, 96, 12, kQ3Scales},
      {4, 32, 32, kQ3Codes, 128},
      {4, 0, 32, kQ3High, 128},
      {4, 64, 32, kQ3Rest}}},
    {DType::Q4_K, kQ4Bytes, {{2, 0, 4, 0}, {1, 4, 16, kKScales}, {4, 20, 128, kKCodes}}},
    {DType::Q5_K,
     kQ5Bytes,
     {{2, 0, 4, 0},
      {1, 4, 16, kKScales},
      {4, 20, 32, kQ5High, 128},
      {4, 52, 32, kKCodes, 128},
      {4, 84, 96, kQ5Rest}}},
    {DType::Q6_K,
     kQ6Bytes,
     {{2, 208, 2, 0},
      {1, 192, 8, kQ6Half},
      {4, 0, 32, kQ6Half + kQ6Codes, 128},
      {4, 128, 32, kQ6Half + kQ6High, 128},
      {4, 32, 32, kQ6Half + kQ6Odd},
      {1, 200, 8, kQ6Half + kQ6HalfBytes},
      {4, 64, 32, kQ6Half + kQ6HalfBytes + kQ6Codes, 128},
      {4, 160, 32, kQ6Half + kQ6HalfBytes + kQ6High, 128},
      {4, 96, 32, kQ6Half + kQ6HalfBytes + kQ6Odd}}},
    {DType::IQ4_NL, kNibbles + 32, {{4, 2, 16, 0}, {2, 0, 2, kNibbles}}},
    {DType::IQ4_XS, kIq4Bytes, {{2, 0, 2, 0}, {1, 2, 8, kIq4Scales}, {4, 10, 128, kIq4Codes}}},
    {DType::BF16, 32, {{2, 0, 2, 0}}},
    {DType::MXFP4, kNibbles + 16, {{4, 1, 16, 0}, {1, 0, 1, kNibbles}}},
    {DType::NVFP4, kNvBytes, {{1, 0, 4, 0}, {4, 4, 32, kNvCodes}}},
};

constexpr const Panel& panel(DType type) {
  return kPanels[static_cast<std::size_t>(type)];
}

constexpr std::size_t panel_bytes(DType type, std::int64_t cols) {
  const auto blocks = static_cast<std::size_t>(cols) / format(type).block_elements;
  const auto block = static_cast<std::size_t>(panel(type).bytes);
  return (blocks * block + 63) / 64 * 64;
}

constexpr bool in_the_order_of_the_formats() {
  for (std::size_t i = 0; i < std::size(kPanels); ++i)
    if (kPanels[i].type != static_cast<DType>(i)) return false;
  return std::size(kPanels) == std::size(kFormats);
}
static_assert(in_the_order_of_the_formats());

}  // namespace ponder::kernels::layout
