#pragma once
// MXFP4: 32 elements in 17 bytes: e (E8M0), qs[16] in the nibble order of Q4_0. A code is an E2M1
// number; kLevels are twice those, hence x = 2^(e - 128) K[q] (OCP Microscaling Formats v1.0, 5.2
// and 5.3, except that e = 255 is no NaN here but 2^127). Exact in f32, also where 2^(e - 128) is
// subnormal (e = 0, 1).
#include "kernels/quant/q4_0.h"

namespace ponder::kernels::mxfp4 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 17;
inline constexpr int kCodesAt = 1;
inline constexpr std::int8_t kLevels[16] = {0, 1,  2,  3,  4,  6,  8,  12,
                                            0, -1, -2, -3, -4, -6, -8, -12};

inline float scale(std::uint32_t e) {
  return float_of_bits(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = scale(byte_at(block, 0));
  for (int i = 0; i < kElements; ++i)
    out[i] = d * static_cast<float>(kLevels[q4_0::code(block + kCodesAt, i)]);
}

}  // namespace ponder::kernels::mxfp4
