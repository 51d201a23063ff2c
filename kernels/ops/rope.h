#pragma once
// Partial rotary position embedding in place, NeoX pairing: with half = rot / 2 and i < half,
//
//   a = x[i], b = x[i + half];  x[i] = a cos_i - b sin_i;  x[i + half] = a sin_i + b cos_i
//
// where the angle is position * theta^(-2 i / rot). Dimensions from rot on are untouched.
// The cosines of a step's positions are the same in all layers and heads: rope_table() computes
// them once.
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
};

/// table[n, rot] for positions first_position..: for each rot/2 cosines, then rot/2 sines.
/// Angles are computed in double.
void rope_table(std::int64_t first_position, std::int64_t n, std::int64_t rot, double theta,
                float* table);

}  // namespace ponder::kernels
