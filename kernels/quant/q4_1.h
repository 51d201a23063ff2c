#pragma once
// Q4_1: 32 elements in 20 bytes: d (f16), m (f16), qs[16] in the nibble order of Q4_0.
// x = d q + m; d q is exact in f32, so the sum is the only rounding.
#include "kernels/quant/q4_0.h"

namespace ponder::kernels::q4_1 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 20;
inline constexpr int kCodesAt = 4;

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int i = 0; i < kElements; ++i)
    out[i] = d * static_cast<float>(q4_0::code(block + kCodesAt, i)) + m;
}

}  // namespace ponder::kernels::q4_1
