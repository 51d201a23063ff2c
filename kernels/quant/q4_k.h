#pragma once
// Q4_K: 256 elements in 144 bytes: d (f16), dmin (f16), 12 bytes of 6-bit scales and minima,
// qs[128]. Bytes 32 i .. 32 i + 31 of qs hold sub-block 2 i in their low and 2 i + 1 in their high
// nibbles. Element of sub-block j: x = d sc_j q - dmin mn_j. d sc_j q and dmin mn_j are exact in
// f32, so the difference is the only rounding.
#include "kernels/quant/float.h"

namespace ponder::kernels::q4_k {

inline constexpr int kElements = 256;
inline constexpr int kBytes = 144;
inline constexpr int kScalesAt = 4;
inline constexpr int kCodesAt = 16;

/// Scale and minimum (0..63) of sub-block j (0..7) from the 12 packed bytes; Q5_K's are the same.
inline void scale_and_min(const std::byte* packed, int j, std::uint8_t& scale,
                          std::uint8_t& minimum) {
  const auto at = [packed](int i) { return byte_at(packed, static_cast<std::size_t>(i)); };
  if (j < 4) {
    scale = static_cast<std::uint8_t>(at(j) & 63u);
    minimum = static_cast<std::uint8_t>(at(j + 4) & 63u);
  } else {
    scale = static_cast<std::uint8_t>((at(j + 4) & 15u) | ((at(j - 4) >> 6) << 4));
    minimum = static_cast<std::uint8_t>((at(j + 4) >> 4) | ((at(j) >> 6) << 4));
  }
}

/// The inverse: 12 bytes from 8 scales and 8 minima.
inline void pack_scales_and_mins(const std::byte* scales, const std::byte* minima,
                                 std::byte* packed) {
  const auto six = std::byte{63}, four = std::byte{15};
  for (int j = 0; j < 4; ++j) {
    packed[j] = (scales[j] & six) | ((scales[j + 4] >> 4) << 6);
    packed[j + 4] = (minima[j] & six) | ((minima[j + 4] >> 4) << 6);
    packed[j + 8] = (scales[j + 4] & four) | ((minima[j + 4] & four) << 4);
  }
}

inline void decode_block(const std::byte* block, float* out) {
  const float d = load_f16(block);
  const float dmin = load_f16(block + 2);
  for (int j = 0; j < 8; ++j) {
    std::uint8_t scale, minimum;
    scale_and_min(block + kScalesAt, j, scale, minimum);
    const float step = d * static_cast<float>(scale);
    const float low = dmin * static_cast<float>(minimum);
    for (int l = 0; l < 32; ++l) {
      const std::uint32_t byte =
          byte_at(block, static_cast<std::size_t>(kCodesAt + 32 * (j / 2) + l));
      out[32 * j + l] = step * static_cast<float>((byte >> (4 * (j % 2))) & 15u) - low;
    }
  }
}

}  // namespace ponder::kernels::q4_k
