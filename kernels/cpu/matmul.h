#pragma once
// matmul: panels of 16 rows (docs/kernels.md) times tiles of up to kTile tokens. A panel's code is
// one template over the tile's width, so a token's sums are formed by the same operations in the
// same order in every width; n = 1 and n = 512 agree bit for bit.
//
// Token side, quantised once per call: for each run of 32 columns a scale d = max|x| / 127, codes
// q = round(x / d) to nearest even, and the sums that the zero points of the formats need.
#include <cstring>

#include "engine/base/check.h"
#include "kernels/core/panel_layout.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/matmul.h"

namespace ponder::kernels {

/// 32 columns of T tokens; 52 bytes a token.
template <int T>
struct TokenBlock {
  std::int8_t q[T][32];
  float d[T];      // scale
  float d_sum[T];  // d * sum q
  std::int32_t minus_128_sum[T];
  std::int32_t minus_32_sum[T][2];  // of each half
};
inline constexpr std::int64_t kTokenBlockBytes = 52;

template <class S>
struct MatMulCpu {
  using F = typename S::F;
  using I = typename S::I;
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
      bytes += panel_count(w) * static_cast<std::int64_t>(layout::panel_bytes(w.type, w.cols));
    }
    CHECK(op.workspace.size() >= matmul_workspace_bytes(op.n, call.cols));
    call.blocks = op.workspace.data();
    call.floats = reinterpret_cast<float*>(op.workspace.data() + float_part(op.n, call.cols));

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

  /// Offset of the f32 tokens in the workspace, after the quantised ones.
  static std::int64_t float_part(std::int64_t n, std::int64_t cols) {
    return ((cols + 31) / 32 * n * kTokenBlockBytes + 63) / 64 * 64;
  }

 private:
  struct Call {
    const MatMul* op;
    std::int64_t cols;
    std::int64_t x_stride;
    std::byte* blocks;  // tiles of TokenBlock<width>[cols / 32]
    float* floats;      // tiles of [cols][width]
  };

  static bool is_float(DType type) {
    return type == DType::F32 || type == DType::F16 || type == DType::BF16;
  }
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
    block.minus_32_sum[t][0] = -32 * sum_low;
    block.minus_32_sum[t][1] = -32 * sum_high;
  }

  // ---- weight side

  /// With few tokens the weights come from memory faster when asked for early; panels follow each
  /// other, so looking past the end of one is looking into the next (and past the last, harmless).
  static constexpr int kPrefetchTokens = 2;
  PONDER_INLINE static void prefetch(const std::byte* p) { __builtin_prefetch(p + 4096); }

  template <int T>
  static void choose(const Call& call, const MatMulOutput& output, std::int64_t panel,
                     std::int64_t tile, std::int64_t width) {
    if constexpr (T > 1) {
      if (width < T) return choose<T - 1>(call, output, panel, tile, width);
    }
    const Weight& w = *output.weight;
    const std::byte* from =
        w.data + panel * static_cast<std::int64_t>(layout::panel_bytes(w.type, w.cols));
    F sum[T];
    PONDER_UNROLL
    for (int t = 0; t < T; ++t)
      sum[t] = S::zero();
    const auto* tokens = blocks_of<T>(call, tile);
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
        q8_0<T>(from, call.cols / 32, tokens, sum);
        break;
      case DType::Q4_K:
        q4_k<T>(from, call.cols / 256, tokens, sum);
        break;
      case DType::Q5_K:
        q5_k<T>(from, call.cols / 256, tokens, sum);
        break;
      case DType::Q6_K:
        q6_k<T>(from, call.cols / 256, tokens, sum);
        break;
    }
    const std::int64_t stride = output.y_stride != 0 ? output.y_stride : w.rows;
    float* y = output.y + tile * kTile * stride + panel * 16;
    const std::int64_t lanes = w.rows - panel * 16;
    PONDER_UNROLL
    for (int t = 0; t < T; ++t) {
      if (lanes >= 16) {
        S::store(y + t * stride, sum[t]);
      } else {
        S::store_n(y + t * stride, sum[t], lanes);
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

  /// sum += (dot * d_w) * d_x for each block.
  template <int T>
  static void q8_0(const std::byte* panel, std::int64_t count, const TokenBlock<T>* tokens,
                   F (&sum)[T]) {
    const std::byte* scales = panel + count * static_cast<std::int64_t>(layout::kQ8CodeBytes);
    for (std::int64_t b = 0; b < count; ++b) {
      I w[8];
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::load_i(panel + b * 512 + j * 64);
      const F d = S::load_f16(scales + b * 32);
      PONDER_UNROLL
      for (int t = 0; t < T; ++t) {
        const I dot = S::dot_q8(w, tokens[b].q[t], tokens[b].minus_128_sum[t]);
        sum[t] = S::fma(S::mul(S::to_float(dot), d), S::set1(tokens[b].d[t]), sum[t]);
      }
    }
  }

  /// sum += (dot * (d sc)) * d_x - (dmin mn) * (d_x sum q) for sub-block j.
  template <int T>
  static void k_sub_block(const I (&w)[8], const std::byte* scales, int j, F d, F minus_dmin,
                          const TokenBlock<T>& tokens, F (&sum)[T]) {
    const F step = S::mul(d, S::to_float(S::load_u8(scales + j * 16)));
    const F low =
        S::mul(minus_dmin, S::to_float(S::load_u8(scales + layout::kMinsAfterScales + j * 16)));
    PONDER_UNROLL
    for (int t = 0; t < T; ++t) {
      const F dot = S::to_float(S::dot_u5(w, tokens.q[t]));
      sum[t] = S::fma(S::mul(dot, step), S::set1(tokens.d[t]), sum[t]);
      sum[t] = S::fma(low, S::set1(tokens.d_sum[t]), sum[t]);
    }
  }

  template <int T>
  static void q4_k(const std::byte* panel, std::int64_t count, const TokenBlock<T>* tokens,
                   F (&sum)[T]) {
    const I nibble = S::set1_i(0x0f0f0f0f);
    for (std::int64_t b = 0; b < count; ++b, panel += layout::kQ4Bytes, tokens += 8) {
      const std::byte* scales = panel + layout::kKScales;
      const F d = S::load_f16(scales + layout::kDAfterScales);
      const F minus_dmin = S::sub(S::zero(), S::load_f16(scales + layout::kDAfterScales + 32));
      for (int pair = 0; pair < 4; ++pair) {
        I w[8];
        PONDER_UNROLL
        for (int j = 0; j < 8; ++j)
          w[j] = S::and_i(S::load_i(panel + pair * 512 + j * 64), nibble);
        k_sub_block<T>(w, scales, 2 * pair, d, minus_dmin, tokens[2 * pair], sum);
        PONDER_UNROLL
        for (int j = 0; j < 8; ++j)
          w[j] = S::and_i(S::template shr<4>(S::load_i(panel + pair * 512 + j * 64)), nibble);
        k_sub_block<T>(w, scales, 2 * pair + 1, d, minus_dmin, tokens[2 * pair + 1], sum);
      }
    }
  }

  /// Bit `Bit` of each byte of x, moved to bit 4.
  template <int Bit>
  static I fifth(I x) {
    const I mask = S::set1_i(0x10101010);
    if constexpr (Bit < 4)
      return S::and_i(S::template shl<4 - Bit>(x), mask);
    else
      return S::and_i(S::template shr<Bit - 4>(x), mask);
  }

  template <int T, int Pair>
  static void q5_k_pair(const std::byte* panel, F d, F minus_dmin, const TokenBlock<T>* tokens,
                        F (&sum)[T]) {
    const I nibble = S::set1_i(0x0f0f0f0f);
    const std::byte* scales = panel + layout::kQ5Scales;
    const std::byte* codes = panel + Pair * 512;
    const std::byte* high = panel + layout::kQ5High;
    I w[8];
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = S::or_i(S::and_i(S::load_i(codes + j * 64), nibble),
                     fifth<2 * Pair>(S::load_i(high + j * 64)));
    k_sub_block<T>(w, scales, 2 * Pair, d, minus_dmin, tokens[2 * Pair], sum);
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = S::or_i(S::and_i(S::template shr<4>(S::load_i(codes + j * 64)), nibble),
                     fifth<2 * Pair + 1>(S::load_i(high + j * 64)));
    k_sub_block<T>(w, scales, 2 * Pair + 1, d, minus_dmin, tokens[2 * Pair + 1], sum);
  }

  template <int T>
  static void q5_k(const std::byte* panel, std::int64_t count, const TokenBlock<T>* tokens,
                   F (&sum)[T]) {
    for (std::int64_t b = 0; b < count; ++b, panel += layout::kQ5Bytes, tokens += 8) {
      const std::byte* d_at = panel + layout::kQ5Scales + layout::kDAfterScales;
      const F d = S::load_f16(d_at);
      const F minus_dmin = S::sub(S::zero(), S::load_f16(d_at + 32));
      q5_k_pair<T, 0>(panel, d, minus_dmin, tokens, sum);
      q5_k_pair<T, 1>(panel, d, minus_dmin, tokens, sum);
      q5_k_pair<T, 2>(panel, d, minus_dmin, tokens, sum);
      q5_k_pair<T, 3>(panel, d, minus_dmin, tokens, sum);
    }
  }

  /// The 32 columns of quarter s of a half block; codes 0..63, zero point 32, a scale for each 16:
  /// sum += ((dot_0 * (d sc_0)) + dot_1 * (d sc_1)) * d_x.
  template <int T, int Quarter>
  static void q6_k_quarter(const std::byte* low, const std::byte* high, const std::byte* scales,
                           F d, const TokenBlock<T>& tokens, F (&sum)[T]) {
    const I nibble = S::set1_i(0x0f0f0f0f), upper = S::set1_i(0x30303030);
    I w[8];
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j) {
      const I codes = S::load_i(low + (Quarter % 2) * 512 + j * 64);
      const I bits = S::load_i(high + j * 64);
      I lower, raised;
      if constexpr (Quarter < 2)
        lower = S::and_i(codes, nibble);
      else
        lower = S::and_i(S::template shr<4>(codes), nibble);
      if constexpr (Quarter == 0)
        raised = S::template shl<4>(bits);
      else if constexpr (Quarter == 1)
        raised = S::template shl<2>(bits);
      else if constexpr (Quarter == 2)
        raised = bits;
      else
        raised = S::template shr<2>(bits);
      w[j] = S::or_i(lower, S::and_i(raised, upper));
    }
    const F first = S::mul(d, S::to_float(S::load_i8(scales + Quarter * 32)));
    const F second = S::mul(d, S::to_float(S::load_i8(scales + Quarter * 32 + 16)));
    PONDER_UNROLL
    for (int t = 0; t < T; ++t) {
      const F a = S::to_float(S::dot_u6(w, tokens.q[t], tokens.minus_32_sum[t][0]));
      const F b = S::to_float(S::dot_u6(w + 4, tokens.q[t] + 16, tokens.minus_32_sum[t][1]));
      sum[t] = S::fma(S::fma(b, second, S::mul(a, first)), S::set1(tokens.d[t]), sum[t]);
    }
  }

  template <int T>
  static void q6_k(const std::byte* panel, std::int64_t count, const TokenBlock<T>* tokens,
                   F (&sum)[T]) {
    for (std::int64_t b = 0; b < count; ++b, panel += layout::kQ6Bytes, tokens += 8) {
      const F d = S::load_f16(panel + layout::kQ6D);
      for (int half = 0; half < 2; ++half) {
        const std::byte* low = panel + half * 1024;
        const std::byte* high = panel + layout::kQ6High + half * 512;
        const std::byte* scales = panel + layout::kQ6Scales + half * 128;
        q6_k_quarter<T, 0>(low, high, scales, d, tokens[4 * half], sum);
        q6_k_quarter<T, 1>(low, high, scales, d, tokens[4 * half + 1], sum);
        q6_k_quarter<T, 2>(low, high, scales, d, tokens[4 * half + 2], sum);
        q6_k_quarter<T, 3>(low, high, scales, d, tokens[4 * half + 3], sum);
      }
    }
  }
};

}  // namespace ponder::kernels
