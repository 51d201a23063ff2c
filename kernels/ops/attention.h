#pragma once
// Causal softmax attention over a cache of keys and values, and the writing of that cache.
//
//   s_j = scale * q . k_j for j = 0..position;  y = sum_j softmax(s)_j v_j
//
// The cache of one layer is a table of blocks of 64 positions: block b holds positions 64 b .. 64 b
// + 63 of all KV heads. Blocks are allocated by the caller (kv_block_bytes(), aligned to 64) as the
// sequence grows, may be copied bytewise and shared once full. Inside a block, for each KV head:
// keys as [4 groups of 16 positions][head_dim][16 positions], then values as [64][head_dim] (f32,
// f16). What lies at positions not yet written influences nothing.
//
// Order of summation, whatever n: blocks from 0 upwards with a running maximum, dot products over
// head_dim in one chain, positions of a block in order. Query head h reads KV head
// h / (heads / kv_heads). Softmax statistics are f32.
//
// Quantised forms (byte order: cpu/kv_layout.h). c are integer codes, d a scale in f16.
//   q8_0  each 32 values along head_dim: x ~ d c, d = max |x| / 127, c = x / d to nearest, ties to
//         even
//   r4    each 128 values (64 where head_dim is no multiple of 128), run R: y = H s x / sqrt(R)
//   with
//         fixed signs s and the Hadamard matrix H; y ~ d c, c the nearest of 16 integers (the
//         Lloyd-Max points of the normal distribution), d = |y| / |c|. Relative squared error 0.9 %
//         whatever the values' distribution: the rotation makes it normal. Queries are rotated
//         once, keys and values never back, outputs once.
// Queries meet either as 8 bit codes with a scale for as many values as share one in the keys;
// weights times value scales have 14 bits relative to the largest of a block. Both products are
// exact in integers, so a block's order does not matter.
// Values past what 16-bit scales reach (q8_0 8.3e6, r4 about 3e7) are cut there, values below 3e-8
// of q8_0 become 0. A NaN or infinity makes the values that share its scale NaN: in a value those
// outputs, in a key or a query whole rows that see it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ponder::kernels {

/// q8_0: 8.5 bits a value; r4: 4.125, or 4.25 where head_dim is no multiple of 128.
enum class KvElement : std::uint8_t { f32, f16, q8_0, r4 };

struct KvShape {
  KvElement element = KvElement::f16;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  ///< at most 256; a multiple of 16, q8_0: of 32, r4: of 64
};

inline constexpr std::int64_t kKvBlockPositions = 64;
/// Whether the ops take the shape. Ops and kv_block_bytes() abort on one that they do not.
bool kv_shape_supported(const KvShape& shape);
/// For the person who asked for an unsupported shape: why not, and what to use instead.
std::string kv_shape_refusal(const KvShape& shape);
std::size_t kv_block_bytes(const KvShape& shape);

/// Stores keys and values of n rows at positions first_position... f16 rounds to nearest even.
struct KvWrite {
  KvShape shape;
  std::span<std::byte* const> blocks;  ///< of this layer; enough for the last position
  std::int64_t first_position = 0;
  std::int64_t n = 0;
  const float* k = nullptr;   ///< [n, kv_heads, head_dim]
  const float* v = nullptr;   ///< [n, kv_heads, head_dim]
  std::int64_t k_stride = 0;  ///< floats from row to row; 0: kv_heads * head_dim
  std::int64_t v_stride = 0;
};

/// Row i stands at position first_position + i and sees positions 0 .. first_position + i, which
/// must have been written. y must not overlap q.
struct Attention {
  KvShape shape;
  std::span<const std::byte* const> blocks;
  std::int64_t first_position = 0;
  std::int64_t n = 0;
  std::int64_t heads = 0;          ///< a multiple of kv_heads
  const float* q = nullptr;        ///< [n, heads, head_dim]
  std::int64_t q_head_stride = 0;  ///< floats from head to head; 0: head_dim
  std::int64_t q_row_stride = 0;   ///< floats from row to row; 0: heads * q_head_stride
  float* y = nullptr;              ///< [n, heads, head_dim], written
  float scale = 0.0f;              ///< 0: 1 / sqrt(head_dim)
};

}  // namespace ponder::kernels
