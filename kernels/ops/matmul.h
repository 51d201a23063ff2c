#pragma once
// y_i = x W_i^T for one or several weights that read the same x (query, key and value; gate and
// up): together they quantise x once and share one start and one finish of the thread pool.
//
//   y_i[t, r] = sum_c x[t, c] * W_i[r, c]
//
// F32, F16, BF16 weights: f32 products; each run of 32 columns is one fused chain, the runs are
// added in order. Quantised weights: x is quantised to int8 with one f32 scale for each 32
// columns, the products within a block are exact integers, the blocks are added in f32 in order.
// y must not overlap x or the workspace. Non-finite x makes its row of a quantised product NaN.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/core/weight.h"

namespace ponder::kernels {

struct MatMulOutput {
  const Weight* weight = nullptr;  ///< [rows, cols]; the same cols in all outputs of a call
  float* y = nullptr;              ///< [n, rows], written
  std::int64_t y_stride = 0;       ///< floats from row to row; 0: weight->rows
};

struct MatMul {
  const float* x = nullptr;   ///< [n, cols]
  std::int64_t x_stride = 0;  ///< floats from row to row; 0: cols
  std::int64_t n = 0;
  std::span<const MatMulOutput> outputs;
  std::span<std::byte> workspace;  ///< at least matmul_workspace_bytes(n, cols), aligned to 64
};

std::size_t matmul_workspace_bytes(std::int64_t n, std::int64_t cols);

}  // namespace ponder::kernels
