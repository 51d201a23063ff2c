#pragma once
// conv_silu.
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/conv_silu.h"

namespace ponder::kernels {

template <class S>
struct ConvSiluCpu {
  using F = typename S::F;

  static void run(const Stream& stream, const ConvSilu& op) {
    const std::int64_t x_stride = op.x_stride != 0 ? op.x_stride : op.channels;
    const std::int64_t y_stride = op.y_stride != 0 ? op.y_stride : op.channels;
    // Channels are independent: a part owns some of them over all rows, and their tail.
    Pieces<S>::for_ranges(
        stream, (op.channels + 15) / 16, 128 * op.n, [&](std::int64_t first, std::int64_t last) {
          for (std::int64_t group = first; group < last; ++group) {
            const std::int64_t c = group * 16;
            channels(op, x_stride, y_stride, c, op.channels - c < 16 ? op.channels - c : 16);
          }
        });
  }

 private:
  static void channels(const ConvSilu& op, std::int64_t x_stride, std::int64_t y_stride,
                       std::int64_t c, std::int64_t lanes) {
    F w[4];
    PONDER_UNROLL
    for (int j = 0; j < 4; ++j)
      w[j] = S::load_n(op.taps + j * op.channels + c, lanes);
    F a = S::load_n(op.tail + c, lanes);
    F b = S::load_n(op.tail + op.channels + c, lanes);
    F d = S::load_n(op.tail + 2 * op.channels + c, lanes);
    for (std::int64_t t = 0; t < op.n; ++t) {
      const F x = S::load_n(op.x + t * x_stride + c, lanes);
      F u = S::mul(w[0], a);
      u = S::fma(w[1], b, u);
      u = S::fma(w[2], d, u);
      u = S::fma(w[3], x, u);
      S::store_n(op.y + t * y_stride + c, vector_silu<S>(u), lanes);
      a = b;
      b = d;
      d = x;
    }
    if (op.leave_tail) return;
    S::store_n(op.tail + c, a, lanes);
    S::store_n(op.tail + op.channels + c, b, lanes);
    S::store_n(op.tail + 2 * op.channels + c, d, lanes);
  }
};

}  // namespace ponder::kernels
