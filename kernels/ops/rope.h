#pragma once
// Partial rotary position embedding in place: with half = rot / 2 and i < half, the pair (a, b)
//
//   a' = a cos_i - b sin_i;  b' = a sin_i + b cos_i
//
// where the angle is position * theta^(-2 i / rot) / divisor_i. Which two dimensions are pair i:
// i and i + half (NeoX pairing), or 2 i and 2 i + 1 (interleaved). Dimensions from rot on are
// untouched. The cosines of a step's positions are the same in all layers and heads: rope_table()
// computes them once.
#include <cstdint>

namespace ponder::kernels {

struct Rope {
  float* x = nullptr;            ///< [n, heads, head_dim], read and written
  const float* table = nullptr;  ///< [n, rot]: rope_table() of the rows' positions
  std::int64_t n = 0;
  std::int64_t heads = 0;
  std::int64_t rot = 0;          ///< even, at most head_dim
  std::int64_t head_stride = 0;  ///< floats from head to head
  std::int64_t row_stride = 0;   ///< floats from row to row
  bool interleaved = false;      ///< pairs (2 i, 2 i + 1) instead of (i, i + rot / 2)
};

/// table[n, rot] for positions first_position..: for each rot/2 cosines, then rot/2 sines.
/// Angles are computed in double. `divisors` [rot/2] slow each frequency down (Llama 3's scaling,
/// rope_freqs.weight); null: all are 1.
void rope_table(std::int64_t first_position, std::int64_t n, std::int64_t rot, double theta,
                float* table, const float* divisors = nullptr);

}  // namespace ponder::kernels
