#pragma once
// Q6_K: 256 elements in 210 bytes: ql[128], qh[64], i8 scales[16], d (f16). For half h (0, 1), lane
// l (0..31) and quarter s (0..3), element 128 h + 32 s + l has its low four bits in the low
// (s < 2) or high nibble of ql[64 h + 32 (s mod 2) + l] and its high two bits in bits 2 s, 2 s + 1
// of qh[32 h + l]. x = d scales[8 h + 2 s + l / 16] (q - 32); exact in f32.
#include "kernels/quant/float.h"

namespace ponder::kernels::q6_k {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 210;
inline constexpr int kHighAt = 128;
inline constexpr int kScalesAt = 192;
inline constexpr int kDAt = 208;

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block + kDAt);
  for (int i = 0; i < kElements; ++i) {
    const int h = i / 128, s = i / 32 % 4, l = i % 32;
    const std::uint32_t low =
        (byte_at(block, static_cast<std::size_t>(64 * h + 32 * (s % 2) + l)) >> (4 * (s / 2))) &
        15u;
    const std::uint32_t high =
        (byte_at(block, static_cast<std::size_t>(kHighAt + 32 * h + l)) >> (2 * s)) & 3u;
    std::int8_t scale;
    std::memcpy(&scale, block + kScalesAt + 8 * h + 2 * s + l / 16, 1);
    const int code = static_cast<int>(low | (high << 4)) - 32;
    out[i] = d * static_cast<float>(scale) * static_cast<float>(code);
  }
}

}  // namespace ponder::kernels::q6_k
