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
#include <algorithm>
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
  std::span<std::byte> workspace;  ///< as matmul_workspace_bytes says, aligned to 64
};

/// The widest x, in columns, that weights of either kind are multiplied with; 0: there are none.
struct MatMulColumns {
  std::int64_t quantised = 0;
  std::int64_t floats = 0;

  void add(DType type, std::int64_t cols) {
    std::int64_t& widest = is_float(type) ? floats : quantised;
    widest = std::max(widest, cols);
  }
};
/// Bytes of workspace for any call of n rows with such weights. x is kept in both forms, one after
/// the other, only where a call has outputs of both kinds.
std::size_t matmul_workspace_bytes(std::int64_t n, const MatMulColumns& columns);

}  // namespace ponder::kernels
