#pragma once
// Q4_0: 32 elements in 18 bytes: d (f16), qs[16]. Byte j holds element j in its low and element
// j + 16 in its high nibble. x = d (q - 8); exact in f32.
#include "kernels/quant/float.h"

namespace ponder::kernels::q4_0 {

inline constexpr int kElements = 32;
inline constexpr int kBytes = 18;
inline constexpr int kCodesAt = 2;

/// Code i (0..31) of 16 bytes in this nibble order, which Q4_1, Q5_0, Q5_1, IQ4_NL and MXFP4 share.
inline std::uint32_t code(const std::byte* qs, int i) {
  return (byte_at(qs, static_cast<std::size_t>(i % 16)) >> (4 * (i / 16))) & 15u;
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  for (int i = 0; i < kElements; ++i)
    out[i] = d * static_cast<float>(static_cast<int>(code(block + kCodesAt, i)) - 8);
}

}  // namespace ponder::kernels::q4_0
