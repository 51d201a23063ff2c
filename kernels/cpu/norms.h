#pragma once
// rms_norm, gated_rms_norm, l2_norm.
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/l2_norm.h"
#include "kernels/ops/rms_norm.h"

namespace ponder::kernels {

template <class S>
struct NormsCpu {
  using F = typename S::F;

  /// sum x^2: vector v goes to partial sum v mod 4, then a fixed tree.
  static float sum_of_squares(const float* x, std::int64_t cols) {
    F sum[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
    std::int64_t i = 0;
    for (; i + 64 <= cols; i += 64)
      PONDER_UNROLL
    for (int v = 0; v < 4; ++v) {
      const F a = S::load(x + i + 16 * v);
      sum[v] = S::fma(a, a, sum[v]);
    }
    for (int v = 0; i < cols; i += 16, ++v) {
      const F a = S::load_n(x + i, cols - i < 16 ? cols - i : 16);
      sum[v] = S::fma(a, a, sum[v]);
    }
    return S::reduce_add(S::add(S::add(sum[0], sum[1]), S::add(sum[2], sum[3])));
  }

  static float inverse_root(float square) { return 1.0f / __builtin_sqrtf(square); }

  static void rms_norm(const Stream& stream, const RmsNorm& op) {
    const std::int64_t x_stride = op.x_stride != 0 ? op.x_stride : op.cols;
    const std::int64_t y_stride = op.y_stride != 0 ? op.y_stride : op.cols;
    const float count = static_cast<float>(op.cols);
    Pieces<S>::for_ranges(stream, op.rows, op.cols, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        const float* x = op.x + r * x_stride;
        float* y = op.y + r * y_stride;
        const F scale = S::set1(inverse_root(sum_of_squares(x, op.cols) / count + op.eps));
        for (std::int64_t i = 0; i < op.cols; i += 16) {
          const std::int64_t n = op.cols - i < 16 ? op.cols - i : 16;
          S::store_n(y + i, S::mul(S::mul(S::load_n(x + i, n), scale), S::load_n(op.w + i, n)), n);
        }
      }
    });
  }

  static void gated_rms_norm(const Stream& stream, const GatedRmsNorm& op) {
    const std::int64_t x_stride = op.x_stride != 0 ? op.x_stride : op.cols;
    const std::int64_t z_stride = op.z_stride != 0 ? op.z_stride : op.cols;
    const std::int64_t y_stride = op.y_stride != 0 ? op.y_stride : op.cols;
    const float count = static_cast<float>(op.cols);
    Pieces<S>::for_ranges(stream, op.rows, op.cols * 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r) {
        const float* x = op.x + r * x_stride;
        const float* z = op.z + r * z_stride;
        float* y = op.y + r * y_stride;
        const F scale = S::set1(inverse_root(sum_of_squares(x, op.cols) / count + op.eps));
        for (std::int64_t i = 0; i < op.cols; i += 16) {
          const std::int64_t n = op.cols - i < 16 ? op.cols - i : 16;
          const F normed = S::mul(S::mul(S::load_n(x + i, n), scale), S::load_n(op.w + i, n));
          S::store_n(y + i, S::mul(normed, vector_silu<S>(S::load_n(z + i, n))), n);
        }
      }
    });
  }

  static void l2_norm(const Stream& stream, const L2Norm& op) {
    const std::int64_t stride = op.row_stride != 0 ? op.row_stride : op.heads * op.cols;
    Pieces<S>::for_ranges(
        stream, op.rows, op.heads * op.cols, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t r = first; r < last; ++r)
            for (std::int64_t h = 0; h < op.heads; ++h) {
              float* x = op.x + r * stride + h * op.cols;
              const F scale = S::set1(op.scale * inverse_root(sum_of_squares(x, op.cols) + op.eps));
              for (std::int64_t i = 0; i < op.cols; i += 16) {
                const std::int64_t n = op.cols - i < 16 ? op.cols - i : 16;
                S::store_n(x + i, S::mul(S::load_n(x + i, n), scale), n);
              }
            }
        });
  }
};

}  // namespace ponder::kernels
