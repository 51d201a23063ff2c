#pragma once
// IQ4_NL: 32 elements in 18 bytes: d (f16), qs[16] in the nibble order of Q4_0. x = d C[q] with 16
// fixed levels; exact in f32.
#include "kernels/quant/q4_0.h"

namespace ponder::kernels::iq4_nl {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 18;
inline constexpr int kCodesAt = 2;
inline constexpr std::int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kElements; ++i)
    out[i] = d * static_cast<float>(kLevels[q4_0::code(block + kCodesAt, i)]);
}

}  // namespace ponder::kernels::iq4_nl
