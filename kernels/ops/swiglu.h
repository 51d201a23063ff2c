#pragma once
// y = silu(gate) * up, silu(g) = g / (1 + exp(-g)). y may be gate or up. Strides in floats, 0:
// cols.
#include <cstdint>

namespace ponder::kernels {

struct SwiGlu {
  const float* gate = nullptr;  ///< [rows, cols]
  const float* up = nullptr;    ///< [rows, cols]
  float* y = nullptr;           ///< [rows, cols], written
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t gate_stride = 0;
  std::int64_t up_stride = 0;
  std::int64_t y_stride = 0;
};

}  // namespace ponder::kernels
