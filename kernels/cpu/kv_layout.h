#pragma once
// Where the bytes of a key-value block lie, for each storage form. A block is the kv heads' pieces
// one after another; a piece is keys then values. All offsets are in bytes; every part starts at a
// multiple of 64 of a block that does.
//
// f32, f16:  keys [4 groups of 16 positions][head_dim][16 positions], values [64][head_dim]
//
// q8_0 and r4, with g = scale_run (values that share a scale):
//   key codes     [4 groups][head_dim / 4][16 positions][4 dimensions]       a register a row
//   key scales    [4 groups][head_dim / g][16 positions]                     f16
//   value codes   [16][head_dim][4 quarters]                                 position 16 quarter +
//   i value scales  [head_dim / g][64]                                         f16
// Key codes are unsigned (q + 128), value codes signed. r4 keeps two rows of codes in the nibbles
// of one: keys of dimensions 8 m + 0..3 low and 8 m + 4..7 high, values of dimensions 32 m + 0..15
// low and 32 m + 16..31 high. So no byte belongs to two positions.
#include <cstdint>

#include "kernels/ops/attention.h"

namespace ponder::kernels::kv_layout {

constexpr bool quantised(KvElement element) {
  return element == KvElement::q8_0 || element == KvElement::r4;
}
/// Values along head_dim that share a scale; r4: that are rotated together.
constexpr std::int64_t scale_run(const KvShape& shape) {
  return shape.element == KvElement::q8_0 ? 32 : shape.head_dim % 128 == 0 ? 128 : 64;
}
/// Bits of one stored value without its scale.
constexpr std::int64_t code_bits(KvElement element) {
  switch (element) {
    case KvElement::f32:
      return 32;
    case KvElement::f16:
      return 16;
    case KvElement::q8_0:
      return 8;
    case KvElement::r4:
      return 4;
  }
  return 0;
}
/// Of the keys, and of the values, of one KV head.
constexpr std::int64_t code_bytes(const KvShape& shape) {
  return kKvBlockPositions * shape.head_dim * code_bits(shape.element) / 8;
}
constexpr std::int64_t scale_bytes(const KvShape& shape) {
  return quantised(shape.element) ? kKvBlockPositions * shape.head_dim / scale_run(shape) * 2 : 0;
}
/// Parts of one KV head, from its start.
constexpr std::int64_t key_scales(const KvShape& shape) {
  return code_bytes(shape);
}
constexpr std::int64_t values(const KvShape& shape) {
  return code_bytes(shape) + scale_bytes(shape);
}
constexpr std::int64_t value_scales(const KvShape& shape) {
  return values(shape) + code_bytes(shape);
}
constexpr std::int64_t head_bytes(const KvShape& shape) {
  return 2 * values(shape);
}

/// r4's codebook: the 16 Lloyd-Max points of the normal distribution (0.1285, 0.3883, 0.6572,
/// 0.9428, 1.2568, 1.6186, 2.0696, 2.7331) times kCentroidUnit, rounded to integers so that they
/// meet queries in integer products; the rounding adds 3e-5 to a relative squared error of 9e-3.
constexpr std::int8_t kCentroids[16] = {-127, -96, -75, -58, -44, -31, -18, -6,
                                        6,    18,  31,  44,  58,  75,  96,  127};
constexpr float kCentroidUnit = 127.0f / 2.733062f;

/// r4's signs before the Hadamard matrix: the first binary digits of pi's fraction.
constexpr float rotation_sign(std::int64_t i) {
  constexpr std::uint64_t kDigits[2] = {0x243f6a8885a308d3u, 0x13198a2e03707344u};
  return (kDigits[i / 64 % 2] >> (i % 64) & 1u) != 0 ? -1.0f : 1.0f;
}

}  // namespace ponder::kernels::kv_layout
