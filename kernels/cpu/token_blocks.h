#pragma once
// The token side of a quantised product, formed once per call: for each run of 32 columns a scale
// d = max|x| / 127, codes q = round(x / d) to nearest even, and the sums that the zero points of
// the formats need. A tile of `width` tokens lies block by block:
//
//   q[width][32] i8 | d[width] | d_sum[width] | minus_128_sum[width] | minus_32_sum[2][width]
//
// where d_sum = d * sum q, and the integers are -128 times the sum and -32 times that of each half.
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"
#include "kernels/quant/formats.h"

namespace ponder::kernels {

inline constexpr std::int64_t kTokenBlockBytes = 52;  // of one token

template <int T>
struct TokenBlock {
  std::int8_t q[T][32];
  float d[T];
  float d_sum[T];
  std::int32_t minus_128_sum[T];
  std::int32_t minus_32_sum[2][T];
};

/// All T tokens of a tile.
template <int T>
struct WholeTile {
  static constexpr int kTokens = T;
  const TokenBlock<T>* block;

  PONDER_INLINE WholeTile at(std::int64_t index) const { return {block + index}; }
  PONDER_INLINE const std::int8_t* q(int t) const { return block->q[t]; }
  PONDER_INLINE float d(int t) const { return block->d[t]; }
  PONDER_INLINE float d_sum(int t) const { return block->d_sum[t]; }
  PONDER_INLINE std::int32_t minus_128_sum(int t) const { return block->minus_128_sum[t]; }
  PONDER_INLINE std::int32_t minus_32_sum(int t, int half) const {
    return block->minus_32_sum[half][t];
  }
};

/// T tokens of a tile of any width, so that formats which are met seldom need code for few T only.
template <int T>
struct PartOfTile {
  static constexpr int kTokens = T;
  const std::byte* codes;   // of the first of the T tokens
  const std::byte* fields;  // its d
  std::int64_t width;

  static PartOfTile of(const std::byte* tile, std::int64_t width, std::int64_t first) {
    return {tile + 32 * first, tile + 32 * width + 4 * first, width};
  }
  PONDER_INLINE PartOfTile at(std::int64_t index) const {
    const std::int64_t bytes = index * kTokenBlockBytes * width;
    return {codes + bytes, fields + bytes, width};
  }
  template <class Number>
  PONDER_INLINE Number field(int which, int t) const {
    Number value;
    std::memcpy(&value, fields + 4 * (which * width + t), 4);
    return value;
  }
  PONDER_INLINE const std::int8_t* q(int t) const {
    return reinterpret_cast<const std::int8_t*>(codes) + 32 * t;
  }
  PONDER_INLINE float d(int t) const { return field<float>(0, t); }
  PONDER_INLINE float d_sum(int t) const { return field<float>(1, t); }
  PONDER_INLINE std::int32_t minus_128_sum(int t) const { return field<std::int32_t>(2, t); }
  PONDER_INLINE std::int32_t minus_32_sum(int t, int half) const {
    return field<std::int32_t>(3 + half, t);
  }
};

/// One panel times some tokens.
struct PanelProduct {
  DType type;
  const std::byte* panel;
  std::int64_t cols;
  const std::byte* tile;  // of `width` tokens
  std::int64_t width;
  float* sums;  // [width][16], written
};
using PanelProductFunction = void (*)(const PanelProduct&);

}  // namespace ponder::kernels
