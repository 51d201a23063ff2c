#pragma once
// Q8_0: 32 elements in 34 bytes: d (f16), i8 q[32]. x = d q.
#include "kernels/quant/float.h"

namespace ponder::kernels::q8_0 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 34;

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kElements; ++i) {
    std::int8_t q;
    std::memcpy(&q, block + 2 + i, 1);
    out[i] = d * static_cast<float>(q);
  }
}

}  // namespace ponder::kernels::q8_0
