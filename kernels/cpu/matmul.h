#pragma once
// matmul: panels of 16 rows (docs/kernels.md) times tiles of up to kTile tokens. A panel's code is
// one template over the tile's width, so a token's sums are formed by the same operations in the
// same order in every width; n = 1 and n = 512 agree bit for bit.
// Token side: token_blocks.h; formats: products.h.
#include <cstring>

#include "engine/base/check.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/products.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/matmul.h"

namespace ponder::kernels {

/// `More` does the formats that have no case in choose().
template <class S, PanelProductFunction More>
struct MatMulCpu {
  using F = typename S::F;
  using I = typename S::I;
  using P = Products<S>;
  static constexpr std::int64_t kTile = S::kTile;

  static void run(const Stream& stream, const MatMul& op) {
    if (op.n <= 0 || op.outputs.empty()) return;
    Call call;
    call.op = &op;
    call.cols = op.outputs[0].weight->cols;
    call.x_stride = op.x_stride != 0 ? op.x_stride : call.cols;
    std::int64_t panels = 0, bytes = 0;
    bool any_float = false, any_quantised = false;
    for (const MatMulOutput& output : op.outputs) {
      const Weight& w = *output.weight;
      CHECK(!w.empty() && w.cols == call.cols);
      (is_float(w.type) ? any_float : any_quantised) = true;
      panels += panel_count(w);
      bytes += panel_count(w) * static_cast<std::int64_t>(w.panel_bytes());
    }
    const std::int64_t quantised_cols = any_quantised ? call.cols : 0;
    const std::int64_t float_cols = any_float ? call.cols : 0;
    CHECK(op.workspace.size() >= matmul_workspace_bytes(op.n, {quantised_cols, float_cols}));
    call.blocks = op.workspace.data();
    call.floats = reinterpret_cast<float*>(op.workspace.data() +
                                           matmul_workspace_bytes(op.n, {quantised_cols, 0}));

    const std::int64_t tiles = (op.n + kTile - 1) / kTile;
    Pieces<S>::for_ranges(stream, tiles, kTile * call.cols,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t tile = first; tile < last; ++tile)
                              prepare<S::kTile>(call, tile, any_float, any_quantised);
                          });
    // A panel's cost in decode is the reading of it, in prefill its products.
    const std::int64_t cost = bytes / panels * (1 + op.n) / 2;
    Pieces<S>::for_ranges(stream, panels, cost, [&](std::int64_t first, std::int64_t last) {
      for (const MatMulOutput& output : op.outputs) {
        const std::int64_t count = panel_count(*output.weight);
        const std::int64_t end = last < count ? last : count;
        // Two panels share each pass over the tokens: both stay in the L1 cache, the tokens come
        // from the L2 half as often.
        for (std::int64_t p = first < 0 ? 0 : first; p < end; p += 2)
          for (std::int64_t tile = 0; tile < tiles; ++tile) {
            const std::int64_t left = op.n - tile * kTile;
            const std::int64_t width = left < kTile ? left : kTile;
            choose<S::kTile>(call, output, p, tile, width);
            if (p + 1 < end) choose<S::kTile>(call, output, p + 1, tile, width);
          }
        first -= count;
        last -= count;
      }
    });
  }

 private:
  struct Call {
    const MatMul* op;
    std::int64_t cols;
    std::int64_t x_stride;
    std::byte* blocks;  // tiles of TokenBlock<width>[cols / 32]
    float* floats;      // tiles of [cols][width]
  };

  static std::int64_t panel_count(const Weight& w) { return (w.rows + 15) / 16; }

  // ---- token side

  template <int T>
  static void prepare(const Call& call, std::int64_t tile, bool any_float, bool any_quantised) {
    if constexpr (T > 1) {
      if (call.op->n - tile * kTile < T)
        return prepare<T - 1>(call, tile, any_float, any_quantised);
    }
    const float* x = call.op->x + tile * kTile * call.x_stride;
    if (any_float) {
      float* out = call.floats + tile * kTile * call.cols;
      for (std::int64_t c = 0; c < call.cols; ++c)
        PONDER_UNROLL
      for (int t = 0; t < T; ++t)
        out[c * T + t] = x[t * call.x_stride + c];
    }
    if (any_quantised) {
      auto* block = blocks_of<T>(call, tile);
      for (std::int64_t c = 0; c < call.cols; c += 32, ++block)
        PONDER_UNROLL
      for (int t = 0; t < T; ++t)
        quantise(x + t * call.x_stride + c, *block, t);
    }
  }

  template <int T>
  static TokenBlock<T>* blocks_of(const Call& call, std::int64_t tile) {
    static_assert(sizeof(TokenBlock<T>) == T * kTokenBlockBytes);
    return reinterpret_cast<TokenBlock<T>*>(call.blocks +
                                            tile * kTile * (call.cols / 32) * kTokenBlockBytes);
  }

  template <int T>
  static void quantise(const float* x, TokenBlock<T>& block, int t) {
    const F low = S::load(x), high = S::load(x + 16);
    // Magnitudes as integers order like the floats, with infinity and NaN above all numbers.
    const I magnitude = S::set1_i(0x7fffffff);
    const std::int32_t largest_bits = S::reduce_max_i(
        S::max_i(S::and_i(S::bits(low), magnitude), S::and_i(S::bits(high), magnitude)));
    float largest;
    std::memcpy(&largest, &largest_bits, 4);
    std::int32_t sum_low = 0, sum_high = 0;
    float d = 0.0f;
    if (largest_bits >= 0x7f800000) {
      d = __builtin_nanf("");
      std::memset(block.q[t], 0, 32);
    } else if (largest < 1e-30f) {  // 127 / largest must stay finite
      std::memset(block.q[t], 0, 32);
    } else {
      d = largest / 127.0f;
      const F inverse = S::set1(127.0f / largest);
      const I q_low = S::to_int(S::mul(low, inverse)), q_high = S::to_int(S::mul(high, inverse));
      S::store_i8(block.q[t], q_low);
      S::store_i8(block.q[t] + 16, q_high);
      sum_low = S::reduce_add_i(q_low);
      sum_high = S::reduce_add_i(q_high);
    }
    block.d[t] = d;
    block.d_sum[t] = d * static_cast<float>(sum_low + sum_high);
    block.minus_128_sum[t] = -128 * (sum_low + sum_high);
    block.minus_32_sum[0][t] = -32 * sum_low;
    block.minus_32_sum[1][t] = -32 * sum_high;
  }

  // ---- weight side

  template <int T>
  static void choose(const Call& call, const MatMulOutput& output, std::int64_t panel,
                     std::int64_t tile, std::int64_t width) {
    if constexpr (T > 1) {
      if (width < T) return choose<T - 1>(call, output, panel, tile, width);
    }
    const Weight& w = *output.weight;
    const std::byte* from = w.data + panel * static_cast<std::int64_t>(w.panel_bytes());
    F sum[T];
    PONDER_UNROLL
    for (int t = 0; t < T; ++t)
      sum[t] = S::zero();
    const WholeTile<T> tile_view{blocks_of<T>(call, tile)};
    const float* x = call.floats + tile * kTile * call.cols;
    switch (w.type) {
      case DType::F32:
        floats<T, LoadF32>(from, call.cols, x, sum);
        break;
      case DType::F16:
        floats<T, LoadF16>(from, call.cols, x, sum);
        break;
      case DType::BF16:
        floats<T, LoadBf16>(from, call.cols, x, sum);
        break;
      case DType::Q8_0:
        P::template panel<typename P::Q8_0, 32>(from, call.cols, tile_view, sum);
        break;
      case DType::Q4_K:
        P::template panel<typename P::Q4_K, 256>(from, call.cols, tile_view, sum);
        break;
      case DType::Q5_K:
        P::template panel<typename P::Q5_K, 256>(from, call.cols, tile_view, sum);
        break;
      case DType::Q6_K:
        P::template panel<typename P::Q6_K, 256>(from, call.cols, tile_view, sum);
        break;
      default:
        return more<T>(call, output, panel, tile, from);
    }
    store<T>(output, panel, tile, sum);
  }

  template <int T>
  static void more(const Call& call, const MatMulOutput& output, std::int64_t panel,
                   std::int64_t tile, const std::byte* from) {
    float sums[T * 16];
    More({output.weight->type, from, call.cols,
          reinterpret_cast<const std::byte*>(blocks_of<T>(call, tile)), T, sums});
    F sum[T];
    PONDER_UNROLL
    for (int t = 0; t < T; ++t)
      sum[t] = S::load(sums + t * 16);
    store<T>(output, panel, tile, sum);
  }

  template <int T>
  static void store(const MatMulOutput& output, std::int64_t panel, std::int64_t tile,
                    const F (&sum)[T]) {
    const Weight& w = *output.weight;
    const F scale = S::set1(w.scale);
    const std::int64_t stride = output.y_stride != 0 ? output.y_stride : w.rows;
    float* y = output.y + tile * kTile * stride + panel * 16;
    const std::int64_t lanes = w.rows - panel * 16;
    PONDER_UNROLL
    for (int t = 0; t < T; ++t) {
      if (lanes >= 16) {
        S::store(y + t * stride, S::mul(sum[t], scale));
      } else {
        S::store_n(y + t * stride, S::mul(sum[t], scale), lanes);
      }
    }
  }

  struct LoadF32 {
    static constexpr std::int64_t kBytes = 4;
    static F load(const std::byte* p) { return S::load_f32(p); }
  };
  struct LoadF16 {
    static constexpr std::int64_t kBytes = 2;
    static F load(const std::byte* p) { return S::load_f16(p); }
  };
  struct LoadBf16 {
    static constexpr std::int64_t kBytes = 2;
    static F load(const std::byte* p) { return S::load_bf16(p); }
  };

  /// Runs of 32 columns, each a chain of its own, so that errors stay small and, in decode, the
  /// chains of several runs overlap.
  template <int T, class Load>
  static void floats(const std::byte* panel, std::int64_t cols, const float* x, F (&sum)[T]) {
    for (std::int64_t start = 0; start < cols; start += 32) {
      const std::int64_t end = start + 32 < cols ? start + 32 : cols;
      F run[T];
      PONDER_UNROLL
      for (int t = 0; t < T; ++t)
        run[t] = S::zero();
      for (std::int64_t c = start; c < end; ++c) {
        const F w = Load::load(panel + c * 16 * Load::kBytes);
        PONDER_UNROLL
        for (int t = 0; t < T; ++t)
          run[t] = S::fma(w, S::set1(x[c * T + t]), run[t]);
      }
      PONDER_UNROLL
      for (int t = 0; t < T; ++t)
        sum[t] = S::add(sum[t], run[t]);
    }
  }
};

}  // namespace ponder::kernels
