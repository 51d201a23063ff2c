#pragma once
// add, swiglu, sigmoid_gate, rope.
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/ops/add.h"
#include "kernels/ops/rope.h"
#include "kernels/ops/sigmoid_gate.h"
#include "kernels/ops/swiglu.h"

namespace ponder::kernels {

template <class S>
struct ElementwiseCpu {
  using F = typename S::F;

  /// y[i] = f(a[i], b[i]) for i < count.
  template <class Function>
  static void pairs(const float* a, const float* b, float* y, std::int64_t count,
                    const Function& f) {
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16)
      S::store(y + i, f(S::load(a + i), S::load(b + i)));
    if (i < count) {
      const std::int64_t rest = count - i;
      S::store_n(y + i, f(S::load_n(a + i, rest), S::load_n(b + i, rest)), rest);
    }
  }

  static void add(const Stream& stream, const Add& op) {
    Pieces<S>::for_ranges(stream, (op.count + 15) / 16, 16,
                          [&](std::int64_t first, std::int64_t last) {
                            const std::int64_t from = first * 16;
                            const std::int64_t to = last * 16 < op.count ? last * 16 : op.count;
                            pairs(op.a + from, op.b + from, op.y + from, to - from,
                                  [](F a, F b) { return S::add(a, b); });
                          });
  }

  static void swiglu(const Stream& stream, const SwiGlu& op) {
    const std::int64_t gate_stride = op.gate_stride != 0 ? op.gate_stride : op.cols;
    const std::int64_t up_stride = op.up_stride != 0 ? op.up_stride : op.cols;
    const std::int64_t y_stride = op.y_stride != 0 ? op.y_stride : op.cols;
    Pieces<S>::for_ranges(stream, op.rows, op.cols * 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r)
        pairs(op.gate + r * gate_stride, op.up + r * up_stride, op.y + r * y_stride, op.cols,
              [](F gate, F up) { return S::mul(vector_silu<S>(gate), up); });
    });
  }

  static void sigmoid_gate(const Stream& stream, const SigmoidGate& op) {
    const std::int64_t x_stride = op.x_stride != 0 ? op.x_stride : op.cols;
    const std::int64_t gate_stride = op.gate_stride != 0 ? op.gate_stride : op.cols;
    const std::int64_t y_stride = op.y_stride != 0 ? op.y_stride : op.cols;
    Pieces<S>::for_ranges(stream, op.rows, op.cols * 4, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t r = first; r < last; ++r)
        pairs(op.x + r * x_stride, op.gate + r * gate_stride, op.y + r * y_stride, op.cols,
              [](F x, F gate) { return S::mul(x, vector_sigmoid<S>(gate)); });
    });
  }

  static void rope(const Stream& stream, const Rope& op) {
    const std::int64_t half = op.rot / 2;
    Pieces<S>::for_ranges(stream, op.n, op.heads * op.rot,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t t = first; t < last; ++t) {
                              const float* cosine = op.table + t * op.rot;
                              for (std::int64_t h = 0; h < op.heads; ++h) {
                                float* x = op.x + t * op.row_stride + h * op.head_stride;
                                if (op.interleaved)
                                  rotate_interleaved(x, cosine, cosine + half, half);
                                else
                                  rotate(x, cosine, cosine + half, half);
                              }
                            }
                          });
  }

 private:
  static void rotate(float* x, const float* cosine, const float* sine, std::int64_t half) {
    for (std::int64_t i = 0; i < half; i += 16) {
      const std::int64_t lanes = half - i < 16 ? half - i : 16;
      const F a = S::load_n(x + i, lanes), b = S::load_n(x + half + i, lanes);
      const F c = S::load_n(cosine + i, lanes), s = S::load_n(sine + i, lanes);
      S::store_n(x + i, S::fma(a, c, S::sub(S::zero(), S::mul(b, s))), lanes);
      S::store_n(x + half + i, S::fma(a, s, S::mul(b, c)), lanes);
    }
  }

  /// The pairs are parted into two vectors, so that the arithmetic is that of rotate().
  static void rotate_interleaved(float* x, const float* cosine, const float* sine,
                                 std::int64_t half) {
    alignas(64) float even[16] = {}, odd[16] = {};
    for (std::int64_t i = 0; i < half; i += 16) {
      const std::int64_t lanes = half - i < 16 ? half - i : 16;
      float* at = x + 2 * i;
      for (std::int64_t j = 0; j < lanes; ++j) {
        even[j] = at[2 * j];
        odd[j] = at[2 * j + 1];
      }
      const F a = S::load(even), b = S::load(odd);
      const F c = S::load_n(cosine + i, lanes), s = S::load_n(sine + i, lanes);
      S::store(even, S::fma(a, c, S::sub(S::zero(), S::mul(b, s))));
      S::store(odd, S::fma(a, s, S::mul(b, c)));
      for (std::int64_t j = 0; j < lanes; ++j) {
        at[2 * j] = even[j];
        at[2 * j + 1] = odd[j];
      }
    }
  }
};

}  // namespace ponder::kernels
