#pragma once
// y = x * sigmoid(gate), sigmoid(g) = 1 / (1 + exp(-g)). y may be x. Strides in floats, 0: cols.
// Gated attention: rows = tokens * heads, cols = head_dim, gate = the second half of each head of
// the query projection (gate_stride = 2 * head_dim).
#include <cstdint>

namespace ponder::kernels {

struct SigmoidGate {
  const float* x = nullptr;     ///< [rows, cols]
  const float* gate = nullptr;  ///< [rows, cols]
  float* y = nullptr;           ///< [rows, cols], written
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t x_stride = 0;
  std::int64_t gate_stride = 0;
  std::int64_t y_stride = 0;
};

}  // namespace ponder::kernels
