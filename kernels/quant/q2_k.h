#pragma once
// Q2_K: 256 elements in 84 bytes: scales[16] (scale in the low, minimum in the high nibble),
// qs[64], d (f16), dmin (f16). For half h (0, 1), quarter s (0..3) and lane l (0..31), element 128
// h + 32 s + l is bits 2 s, 2 s + 1 of qs[32 h + l]; 16 elements share a scale byte, in order. x =
// d sc q - dmin mn; both products are exact in f32.
#include "kernels/quant/float.h"

namespace ponder::kernels::q2_k {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 84;
inline constexpr int kCodesAt = 16;
inline constexpr int kDAt = 80;

/// The two bits of element i (0..255), in the order of Q2_K and Q3_K.
inline std::uint32_t code(const std::byte* qs, int i) {
  return (byte_at(qs, static_cast<std::size_t>(32 * (i / 128) + i % 32)) >> (2 * (i / 32 % 4))) &
         3u;
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block + kDAt);
  const float dmin = load_f16(block + kDAt + 2);
  for (int i = 0; i < kElements; ++i) {
    const std::uint32_t scale = byte_at(block, static_cast<std::size_t>(i / 16));
    const float step = d * static_cast<float>(scale & 15u);
    const float low = dmin * static_cast<float>(scale >> 4);
    out[i] = step * static_cast<float>(code(block + kCodesAt, i)) - low;
  }
}

}  // namespace ponder::kernels::q2_k
