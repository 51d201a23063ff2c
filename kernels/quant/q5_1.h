#pragma once
// Q5_1: 32 elements in 24 bytes: d (f16), m (f16), qh (u32) and qs[16] as in Q5_0. x = d q + m;
// d q is exact in f32.
#include "kernels/quant/q5_0.h"

namespace ponder::kernels::q5_1 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 24;
inline constexpr int kHighAt = 4;
inline constexpr int kCodesAt = 8;

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const float m = load_f16(block + 2);
  for (int i = 0; i < kElements; ++i)
    out[i] = d * static_cast<float>(q5_0::code(block + kHighAt, block + kCodesAt, i)) + m;
}

}  // namespace ponder::kernels::q5_1
