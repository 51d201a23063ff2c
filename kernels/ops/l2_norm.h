#pragma once
// x <- scale * x * (1 / sqrt(sum(x^2) + eps)) in place, for each head of each row: head h of row t
// is x[t * row_stride + h * cols .. + cols]. scale carries the 1/sqrt(dk) of a query.
#include <cstdint>

namespace ponder::kernels {

struct L2Norm {
  float* x = nullptr;  ///< [rows, heads, cols], read and written
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;  ///< floats from row to row; 0: heads * cols
  float eps = 1e-6f;
  float scale = 1.0f;
};

}  // namespace ponder::kernels
