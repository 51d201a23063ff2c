#pragma once
// Where things lie in a packed panel of 16 rows; picture in docs/kernels.md. "Dword-interleaved"
// means: dword w of row r's bytes lies at dword 16 w + r, so that one 64-byte load holds the same
// four columns of 16 rows. All offsets in bytes; every part starts at a multiple of 64 from the
// panel but the 32-byte vectors of f16 scales.
#include <cstddef>
#include <cstdint>

#include "kernels/quant/formats.h"

namespace ponder::kernels::layout {

inline constexpr std::size_t kRows = 16;

// Q8_0: cols / 32 blocks of codes (q + 128 as u8, dword-interleaved, 512 bytes), then cols / 32
// vectors of f16 d[16].
inline constexpr std::size_t kQ8CodeBytes = 512;
inline constexpr std::size_t kQ8ScaleBytes = 32;

// Q4_K and Q5_K, for each 256 columns: qs dword-interleaved; Q5_K's qh dword-interleaved; scales
// u8 [8][16]; minima u8 [8][16]; f16 d[16]; f16 dmin[16].
inline constexpr std::size_t kKScales = 2048;  // Q4_K; Q5_K has 512 bytes of qh before it
inline constexpr std::size_t kQ5High = 2048;
inline constexpr std::size_t kQ5Scales = 2560;
inline constexpr std::size_t kMinsAfterScales = 128;
inline constexpr std::size_t kDAfterScales = 256;
inline constexpr std::size_t kQ4Bytes = kKScales + 320;   // 2368
inline constexpr std::size_t kQ5Bytes = kQ5Scales + 320;  // 2880

// Q6_K, for each 256 columns: ql and qh dword-interleaved; scales i8 [16][16]; f16 d[16]; 32 bytes
// of padding.
inline constexpr std::size_t kQ6High = 2048;
inline constexpr std::size_t kQ6Scales = 3072;
inline constexpr std::size_t kQ6D = 3328;
inline constexpr std::size_t kQ6Bytes = 3392;

// F32, F16, BF16: for each column the 16 rows' values.

constexpr std::size_t panel_bytes(DType type, std::int64_t cols) {
  const auto n = static_cast<std::size_t>(cols);
  std::size_t bytes = 0;
  switch (type) {
    case DType::F32:
      bytes = n * kRows * 4;
      break;
    case DType::F16:
    case DType::BF16:
      bytes = n * kRows * 2;
      break;
    case DType::Q8_0:
      bytes = n / 32 * (kQ8CodeBytes + kQ8ScaleBytes);
      break;
    case DType::Q4_K:
      bytes = n / 256 * kQ4Bytes;
      break;
    case DType::Q5_K:
      bytes = n / 256 * kQ5Bytes;
      break;
    case DType::Q6_K:
      bytes = n / 256 * kQ6Bytes;
      break;
  }
  return (bytes + 63) / 64 * 64;
}

}  // namespace ponder::kernels::layout
