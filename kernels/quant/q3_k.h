#pragma once
// Q3_K: 256 elements in 110 bytes: hmask[32], qs[64], scales[12] (16 of 6 bits), d (f16). The low
// two bits of element i lie as in Q2_K; its third is bit i / 32 of hmask[i mod 32]. 16 elements
// share a scale. x = d (sc - 32) (q - 4); exact in f32.
#include "kernels/quant/q2_k.h"

namespace ponder::kernels::q3_k {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 110;
inline constexpr int kCodesAt = 32;
inline constexpr int kScalesAt = 96;
inline constexpr int kDAt = 108;

/// Scale i (0..15) as stored, 0..63, zero point 32: four bits from bytes 0..7, two from 8..11.
inline std::uint32_t scale(const std::byte* scales, int i) {
  const std::uint32_t low =
      (byte_at(scales, static_cast<std::size_t>(i % 8)) >> (4 * (i / 8))) & 15u;
  const std::uint32_t high =
      (byte_at(scales, static_cast<std::size_t>(8 + i % 4)) >> (2 * (i / 4))) & 3u;
  return low | (high << 4);
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block + kDAt);
  for (int i = 0; i < kElements; ++i) {
    const std::uint32_t third = (byte_at(block, static_cast<std::size_t>(i % 32)) >> (i / 32)) & 1u;
    const std::uint32_t q = q2_k::code(block + kCodesAt, i) | (third << 2);
    const int s = static_cast<int>(scale(block + kScalesAt, i / 16)) - 32;
    out[i] = d * static_cast<float>(s) * static_cast<float>(static_cast<int>(q) - 4);
  }
}

}  // namespace ponder::kernels::q3_k
