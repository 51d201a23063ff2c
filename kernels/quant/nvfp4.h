#pragma once
// NVFP4 as GGUF stores it: 64 elements in 36 bytes: d[4] (UE4M3), qs[32]. Sub-block s has 16
// elements: element 16 s + i is the low nibble of qs[8 s + i] for i < 8, else the high nibble of
// qs[8 s + i - 8]. x = scale(d[s]) K[q] with the levels of MXFP4, which are doubled, hence the half
// in scale(). Exact in f32. A checkpoint's second scale lies in a tensor of its own
// (Weight::scale).
#include "kernels/quant/mxfp4.h"

namespace ponder::kernels::nvfp4 {

inline constexpr int kElements = 64;
inline constexpr int kBytes = 36;
inline constexpr int kCodesAt = 4;

/// Half of a UE4M3 number. 0x7f, which would be NaN, counts as 0; the sign bit is ignored, but
/// 0xff is a number.
inline float scale(std::uint32_t byte) {
  const std::uint32_t exponent = (byte >> 3) & 15u, fraction = byte & 7u;
  if (byte == 0x7f) return 0.0f;
  if (exponent == 0) return static_cast<float>(fraction) * 0x1p-10f;
  return float_of_bits(((exponent + 119) << 23) | (fraction << 20));
}

inline void decode_block(const std::byte* block, float* out) {
  for (int i = 0; i < kElements; ++i) {
    const int s = i / 16, l = i % 16;
    const std::uint32_t byte = byte_at(block, static_cast<std::size_t>(kCodesAt + 8 * s + l % 8));
    const std::int8_t level = mxfp4::kLevels[(byte >> (4 * (l / 8))) & 15u];
    out[i] = scale(byte_at(block, static_cast<std::size_t>(s))) * static_cast<float>(level);
  }
}

}  // namespace ponder::kernels::nvfp4
