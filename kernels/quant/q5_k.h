#pragma once
// Q5_K: 256 elements in 176 bytes: d (f16), dmin (f16), 12 bytes of scales and minima as Q4_K,
// qh[32], qs[128] as Q4_K; bit j of qh[l] is the fifth bit of element l of sub-block j.
// x = d sc_j q - dmin mn_j.
#include "kernels/quant/q4_k.h"

namespace ponder::kernels::q5_k {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 176;
inline constexpr int kScalesAt = 4;
inline constexpr int kHighAt = 16;
inline constexpr int kCodesAt = 48;

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    std::uint8_t scale, minimum;
    q4_k::scale_and_min(block + kScalesAt, j, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float low = dmin * static_cast<float>(minimum);
    for (int l = 0; l < 32; ++l) {
      const std::uint32_t byte =
          byte_at(block, static_cast<std::size_t>(kCodesAt + 32 * (j / 2) + l));
      const std::uint32_t high = (byte_at(block, static_cast<std::size_t>(kHighAt + l)) >> j) & 1u;
      const std::uint32_t code = ((byte >> (4 * (j % 2))) & 15u) | (high << 4);
      out[32 * j + l] = step * static_cast<float>(code) - low;
    }
  }
}

}  // namespace ponder::kernels::q5_k
