#pragma once
// What a key-value block holds and what a quantised query becomes, by the words of ops/attention.h
// and kv_layout.h: one value at a time, in double.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/core/arena.h"
#include "kernels/ops/attention.h"
#include "kernels/quant/float.h"

namespace ponder::kernels {

/// Blocks for some positions of one layer.
struct Cache {
  Cache(const KvShape& s, std::int64_t positions) : shape(s) {
    for (std::int64_t p = 0; p < positions; p += kKvBlockPositions) {
      memory.push_back(Arena::make(kv_block_bytes(shape)).value());
      blocks.push_back(memory.back().take(kv_block_bytes(shape)));
      // Whatever lies where nothing was written must not matter: NaN everywhere.
      std::memset(blocks.back(), 0xff, kv_block_bytes(shape));
    }
  }
  std::span<const std::byte* const> read() const { return {blocks.data(), blocks.size()}; }
  KvShape shape;
  std::vector<Arena> memory;
  std::vector<std::byte*> blocks;
};

inline double entry(std::int64_t i, std::int64_t j) {  // of a Hadamard matrix
  return std::popcount(static_cast<std::uint64_t>(i & j)) % 2 == 0 ? 1.0 : -1.0;
}
inline double rotation_sign_bit(std::int64_t i) {
  const std::uint64_t digits = i < 64 ? 0x243f6a8885a308d3u : 0x13198a2e03707344u;
  return (digits >> (i % 64) & 1u) != 0 ? -1.0 : 1.0;
}
inline std::int64_t run_of(const KvShape& s) {
  return s.element == KvElement::q8_0 ? 32 : s.head_dim % 128 == 0 ? 128 : 64;
}
/// r4's rotation of each run, or its inverse.
inline std::vector<double> rotated(const KvShape& s, const std::vector<double>& x, bool back) {
  const std::int64_t run = run_of(s);
  std::vector<double> y(x.size());
  for (std::int64_t at = 0; at < s.head_dim; at += run)
    for (std::int64_t i = 0; i < run; ++i)
      for (std::int64_t j = 0; j < run; ++j)
        y[static_cast<std::size_t>(at + i)] += entry(i, j) * rotation_sign_bit(back ? i : j) /
                                               std::sqrt(static_cast<double>(run)) *
                                               x[static_cast<std::size_t>(at + j)];
  return y;
}

/// Key or value of a position in a block as stored; r4's stay rotated.
inline std::vector<double> stored(const KvShape& s, const std::byte* block, std::int64_t head,
                                  std::int64_t slot, bool key) {
  constexpr int kCentroids[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                  6,    18,  31,  44,  58,  75,  96,  127};
  const std::int64_t dim = s.head_dim, run = run_of(s), group = slot / 16, lane = slot % 16;
  std::int64_t codes = 64 * dim, scales = 0;  // bytes of the keys, or of the values
  if (s.element == KvElement::f32) codes *= 4;
  if (s.element == KvElement::f16) codes *= 2;
  if (s.element == KvElement::r4) codes /= 2;
  if (s.element == KvElement::q8_0 || s.element == KvElement::r4) scales = 64 * dim / run * 2;
  const std::byte* from = block + (2 * head + (key ? 0 : 1)) * (codes + scales);
  std::vector<double> x;
  for (std::int64_t d = 0; d < dim; ++d) {
    const std::int64_t plain = key ? (group * dim + d) * 16 + lane : slot * dim + d;
    const std::int64_t r = d / run;
    const float scale =
        scales == 0 ? 1.0f
                    : load_f16(from + codes +
                               2 * (key ? (group * (dim / run) + r) * 16 + lane : r * 64 + slot));
    double value = 0;
    if (s.element == KvElement::f32) {
      float f;
      std::memcpy(&f, from + 4 * plain, 4);
      value = static_cast<double>(f);
    } else if (s.element == KvElement::f16) {
      value = static_cast<double>(load_f16(from + 2 * plain));
    } else if (s.element == KvElement::q8_0) {
      const std::int64_t at =
          key ? (group * (dim / 4) + d / 4) * 64 + lane * 4 + d % 4 : (lane * dim + d) * 4 + group;
      const int byte = std::to_integer<int>(from[at]);
      value = key ? byte - 128 : static_cast<std::int8_t>(byte);
    } else {
      const std::int64_t at = key ? (group * (dim / 8) + d / 8) * 64 + lane * 4 + d % 4
                                  : (lane * (dim / 2) + d / 32 * 16 + d % 16) * 4 + group;
      const bool high = key ? d % 8 >= 4 : d % 32 >= 16;
      value = kCentroids[std::to_integer<int>(from[at]) >> (high ? 4 : 0) & 15];
    }
    x.push_back(value * static_cast<double>(scale));
  }
  return x;
}
/// The same in the model's own directions.
inline std::vector<double> decoded(const KvShape& s, const std::byte* block, std::int64_t head,
                                   std::int64_t slot, bool key) {
  const std::vector<double> x = stored(s, block, head, slot, key);
  return s.element == KvElement::r4 ? rotated(s, x, true) : x;
}

/// What meets the stored keys: for the quantised forms 8 bit codes, for r4 of the rotated query.
inline std::vector<double> taken_query(const KvShape& s, const float* q) {
  std::vector<double> x(q, q + s.head_dim);
  if (s.element == KvElement::f32 || s.element == KvElement::f16) return x;
  if (s.element == KvElement::r4) x = rotated(s, x, false);
  const auto run = static_cast<std::size_t>(run_of(s));
  for (std::size_t at = 0; at < x.size(); at += run) {
    double largest = 0;
    for (std::size_t i = at; i < at + run; ++i)
      largest = std::max(largest, std::fabs(x[i]));
    for (std::size_t i = at; i < at + run && largest > 0; ++i)
      x[i] = std::nearbyint(x[i] / largest * 127) * largest / 127;
  }
  return x;
}

}  // namespace ponder::kernels
