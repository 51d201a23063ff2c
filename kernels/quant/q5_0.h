#pragma once
// Q5_0: 32 elements in 22 bytes: d (f16), qh (u32), qs[16] in the nibble order of Q4_0; bit i of qh
// is the fifth bit of element i. x = d (q - 16); exact in f32.
#include "kernels/quant/q4_0.h"

namespace ponder::kernels::q5_0 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 22;
inline constexpr int kHighAt = 2;
inline constexpr int kCodesAt = 6;

/// Code i (0..31) from its low and high part; Q5_1's are the same.
inline std::uint32_t code(const std::byte* high, const std::byte* qs, int i) {
  std::uint32_t bits;
  std::memcpy(&bits, high, 4);
  return q4_0::code(qs, i) | (((bits >> i) & 1u) << 4);
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kElements; ++i)
    out[i] =
        d * static_cast<float>(static_cast<int>(code(block + kHighAt, block + kCodesAt, i)) - 16);
}

}  // namespace ponder::kernels::q5_0
