#pragma once
// IQ4_XS: 256 elements in 136 bytes: d (f16), scales_h (u16), scales_l[4], qs[128]. Sub-block j (32
// elements, 16 bytes of qs in the nibble order of Q4_0) has a scale of six bits with zero point 32:
// four from scales_l, two from scales_h. x = d (sc - 32) C[q] with the levels of IQ4_NL; exact in
// f32.
#include "kernels/quant/iq4_nl.h"

namespace ponder::kernels::iq4_xs {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 136;
inline constexpr int kScalesHighAt = 2;
inline constexpr int kScalesLowAt = 4;
inline constexpr int kCodesAt = 8;

/// Scale of sub-block j (0..7) of a block, -32..31.
inline int scale(const std::byte* block, int j) {
  const std::uint32_t low =
      (byte_at(block, static_cast<std::size_t>(kScalesLowAt + j / 2)) >> (4 * (j % 2))) & 15u;
  const std::uint32_t high = (std::uint32_t{load_u16(block + kScalesHighAt)} >> (2 * j)) & 3u;
  return static_cast<int>(low | (high << 4)) - 32;
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kElements; ++i) {
    const int level = iq4_nl::kLevels[q4_0::code(block + kCodesAt + 16 * (i / 32), i % 32)];
    out[i] = d * static_cast<float>(scale(block, i / 32)) * static_cast<float>(level);
  }
}

}  // namespace ponder::kernels::iq4_xs
