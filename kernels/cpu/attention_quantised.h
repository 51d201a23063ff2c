#pragma once
// attention and kv_write on q8_0 and r4 keys and values. Both products are integer products, exact
// whatever the instruction set:
//
//   scores   codes of a query (8 bits, a scale for each scale_run) times codes of keys; one f32
//            product and sum for each run
//   outputs  within a block, weight times value scale, w_j = p_j d_j, becomes 14 bits relative to
//            the block's largest: w_j ~ (128 high + low) max w / 16383, 0 <= high, low <= 127.
//            Then sum_j w_j c_j = max w / 16383 (128 sum high c + sum low c).
//
// 14 bits because AVX2 adds pairs of byte products in 16 bits: seven bits cannot saturate there.
// The same products in f32, as f16 does them, take 1.8 times as long from the L3 cache (AVX-512,
// head_dim 256, 4 heads a KV head, 8192 positions: 339 against 190 microseconds).
#include "kernels/cpu/attention_softmax.h"
#include "kernels/cpu/kv_codes.h"

namespace ponder::kernels {

template <class S>
struct KvWriteQuantisedCpu {
  static constexpr std::int64_t kBlock = kKvBlockPositions;

  /// Row i: k and v are its keys and values of all KV heads.
  static void row(const KvWrite& op, std::int64_t i, const float* k, const float* v) {
    const KvShape& shape = op.shape;
    const std::int64_t position = op.first_position + i, slot = position % kBlock;
    const std::int64_t dim = shape.head_dim, run = kv_layout::scale_run(shape), runs = dim / run;
    std::byte* block = op.blocks[static_cast<std::size_t>(position / kBlock)];
    const std::int64_t group = slot / 16, lane = slot % 16;
    for (std::int64_t h = 0; h < shape.kv_heads; ++h) {
      std::byte* keys = block + h * kv_layout::head_bytes(shape);
      std::byte* values = keys + kv_layout::values(shape);
      std::int8_t codes[kMaxDim];
      for (std::int64_t r = 0; r < runs; ++r)
        put(keys + kv_layout::key_scales(shape) + ((group * runs + r) * 16 + lane) * 2,
            quantise(shape, k + h * dim + r * run, codes + r * run));
      std::byte* rows = keys + group * (kv_layout::code_bytes(shape) / 4) + lane * 4;
      if (shape.element == KvElement::q8_0) {
        for (std::int64_t d = 0; d < dim; ++d)
          rows[d / 4 * 64 + d % 4] = static_cast<std::byte>(codes[d] + 128);
      } else {
        for (std::int64_t d = 0; d < dim; d += 8)
          for (std::int64_t b = 0; b < 4; ++b)
            rows[d / 8 * 64 + b] = nibbles(codes[d + b], codes[d + 4 + b]);
      }

      for (std::int64_t r = 0; r < runs; ++r)
        put(keys + kv_layout::value_scales(shape) + (r * kBlock + slot) * 2,
            quantise(shape, v + h * dim + r * run, codes + r * run));
      rows = values + lane * (kv_layout::code_bytes(shape) / 16) + group;
      if (shape.element == KvElement::q8_0) {
        for (std::int64_t d = 0; d < dim; ++d)
          rows[d * 4] = static_cast<std::byte>(codes[d]);
      } else {
        for (std::int64_t d = 0; d < dim; d += 32)
          for (std::int64_t b = 0; b < 16; ++b)
            rows[(d / 2 + b) * 4] = nibbles(codes[d + b], codes[d + 16 + b]);
      }
    }
  }

 private:
  static constexpr std::int64_t kMaxDim = 256;

  static std::uint16_t quantise(const KvShape& shape, const float* x, std::int8_t* codes) {
    if (shape.element == KvElement::q8_0) return KvCodes<S>::quantise_q8_0(x, codes);
    return kv_layout::scale_run(shape) == 128 ? KvCodes<S>::template quantise_r4<8>(x, codes)
                                              : KvCodes<S>::template quantise_r4<4>(x, codes);
  }
  static std::byte nibbles(std::int8_t low, std::int8_t high) {
    return static_cast<std::byte>(low | high << 4);
  }
  static void put(std::byte* at, std::uint16_t half) { std::memcpy(at, &half, 2); }
};

template <class S>
struct AttentionQuantisedCpu {
  using F = typename S::F;
  using I = typename S::I;
  using Codes = KvCodes<S>;
  static constexpr std::int64_t kBlock = kKvBlockPositions;
  static constexpr std::int64_t kMaxDim = 256;
  /// Query vectors that share each load: more than of floats, as sums are fewer.
  static constexpr int kQueries = S::kQueries > 4 ? 8 : 4;

  /// Query vectors from .. from + count - 1 of one KV head (rows outermost).
  static void run(const Attention& op, std::int64_t kv_head, std::int64_t from, int count) {
    if (op.shape.element == KvElement::q8_0) {
      choose<Q8, kQueries>(op, kv_head, from, count);
    } else if (kv_layout::scale_run(op.shape) == 128) {
      choose<R4<128>, kQueries>(op, kv_head, from, count);
    } else {
      choose<R4<64>, kQueries>(op, kv_head, from, count);
    }
  }

 private:
  struct Q8 {
    static constexpr std::int64_t kRun = 32;
    static constexpr std::int64_t kBits = 8;
    static constexpr bool kRotated = false;
    Q8() = default;
    /// 32 dimensions of 16 positions' keys, unsigned.
    PONDER_INLINE void keys(const std::byte* p, I (&w)[8]) const {
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::load_i(p + 64 * j);
    }
    /// 16 dimensions of 4 positions' values: those from 16 `half` of the 32 that start at p.
    PONDER_INLINE I values(const std::byte* p, int half) const { return S::load_i(p + 64 * half); }
  };
  template <std::int64_t Run>
  struct R4 {
    static constexpr std::int64_t kRun = Run;
    static constexpr std::int64_t kBits = 4;
    static constexpr bool kRotated = true;
    R4() {
      std::uint8_t shifted[16];
      for (int i = 0; i < 16; ++i)
        shifted[i] = static_cast<std::uint8_t>(kv_layout::kCentroids[i] + 128);
      key_table = S::repeat16(shifted);
      value_table = S::repeat16(kv_layout::kCentroids);
    }
    PONDER_INLINE void keys(const std::byte* p, I (&w)[8]) const {
      const I low = S::set1_i(0x0f0f0f0f);
      PONDER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const I two = S::load_i(p + 64 * j);
        w[2 * j] = S::lookup(key_table, S::and_i(two, low));
        w[2 * j + 1] = S::lookup(key_table, S::and_i(S::template shr<4>(two), low));
      }
    }
    PONDER_INLINE I values(const std::byte* p, int half) const {
      const I two = S::load_i(p), low = S::set1_i(0x0f0f0f0f);
      return S::lookup(value_table, S::and_i(half == 0 ? two : S::template shr<4>(two), low));
    }
    I key_table, value_table;
  };

  template <class Form, int Q>
  static void choose(const Attention& op, std::int64_t kv_head, std::int64_t from, int count) {
    if (count == Q) return Tile<Form, Q>().run(op, kv_head, from);
    if constexpr (Q > 1) choose<Form, Q - 1>(op, kv_head, from, count);
  }

  template <class Form, int Q>
  struct Tile {
    static constexpr std::int64_t kRun = Form::kRun;
    static constexpr int kParts = kRun / 16;
    static constexpr std::int64_t kMaxRuns = kMaxDim / kRun;

    const Form form{};
    std::int64_t dim, runs;
    std::int64_t seen[Q];  // positions of the current block that the vector sees
    float m[Q], l[Q];
    float d[Q][kMaxRuns];  // scales of the queries, times that of the scores
    std::int32_t minus_128_sum[Q][kMaxDim / 32];
    alignas(64) std::int8_t codes[Q][kMaxDim];
    alignas(64) float p[Q][kBlock];
    alignas(64) float o[Q][kMaxDim];
    float largest[Q];
    alignas(64) std::uint8_t high[Q][kBlock], low[Q][kBlock];

    void run(const Attention& op, std::int64_t kv_head, std::int64_t from) {
      dim = op.shape.head_dim;
      runs = dim / kRun;
      const std::int64_t group = op.heads / op.shape.kv_heads;
      const std::int64_t head_stride = op.q_head_stride != 0 ? op.q_head_stride : dim;
      const std::int64_t row_stride =
          op.q_row_stride != 0 ? op.q_row_stride : op.heads * head_stride;
      const float scale =
          op.scale != 0.0f ? op.scale : 1.0f / __builtin_sqrtf(static_cast<float>(dim));
      float* y[Q];
      std::int64_t length[Q], longest = 0;
      for (int i = 0; i < Q; ++i) {
        const std::int64_t row = (from + i) / group, head = kv_head * group + (from + i) % group;
        y[i] = op.y + (row * op.heads + head) * dim;
        length[i] = op.first_position + row + 1;
        if (length[i] > longest) longest = length[i];
        m[i] = -__builtin_inff();
        l[i] = 0.0f;
        for (std::int64_t at = 0; at < dim; at += 16)
          S::store(o[i] + at, S::zero());
        take_query(op.q + row * row_stride + head * head_stride, scale, i);
      }
      for (std::int64_t start = 0; start < longest; start += kBlock) {
        const std::byte* block = op.blocks[static_cast<std::size_t>(start / kBlock)] +
                                 kv_head * kv_layout::head_bytes(op.shape);
        const std::int64_t filled = longest - start < kBlock ? longest - start : kBlock;
        scores(block, block + kv_layout::key_scales(op.shape), filled);
        for (int i = 0; i < Q; ++i) {
          seen[i] = length[i] - start < filled ? length[i] - start : filled;
          if (seen[i] > 0) RunningSoftmax<S>::soften(p[i], seen[i], dim, m[i], l[i], o[i]);
        }
        const std::byte* scales = block + kv_layout::value_scales(op.shape);
        for (std::int64_t r = 0; r < runs; ++r, scales += kBlock * 2) {
          weights(scales);
          const std::int64_t rows = filled < 16 ? filled : 16;
          for (std::int64_t at = r * kRun; at < (r + 1) * kRun; at += 32)
            outputs(block + kv_layout::values(op.shape) + at * 4 * Form::kBits / 8, rows, at);
        }
      }
      for (int i = 0; i < Q; ++i)
        finish(i, y[i]);
    }

    void take_query(const float* q, float scale, int i) {
      for (std::int64_t r = 0; r < runs; ++r) {
        F x[kParts];
        PONDER_UNROLL
        for (int j = 0; j < kParts; ++j)
          x[j] = S::load(q + r * kRun + 16 * j);
        if constexpr (Form::kRotated) Codes::rotate(x);
        d[i][r] = Codes::quantise_query(x, codes[i] + r * kRun) * scale;
      }
      for (std::int64_t at = 0; at < dim; at += 32) {
        const auto* bytes = reinterpret_cast<const std::byte*>(codes[i] + at);
        minus_128_sum[i][at / 32] =
            -128 * S::reduce_add_i(S::add_i(S::load_i8(bytes), S::load_i8(bytes + 16)));
      }
    }

    /// p[i][j] = scale * q_i . k_j, what's computed for positions that are not filled is dropped by
    /// soften().
    void scores(const std::byte* keys, const std::byte* scales, std::int64_t filled) {
      for (std::int64_t g = 0; g * 16 < filled; ++g) {
        F sum[Q];
        PONDER_UNROLL
        for (int i = 0; i < Q; ++i)
          sum[i] = S::zero();
        for (std::int64_t r = 0; r < runs; ++r, scales += 32) {
          I dot[Q];
          PONDER_UNROLL
          for (int part = 0; part < kRun / 32; ++part, keys += 64 * Form::kBits) {
            I w[8];
            form.keys(keys, w);
            PONDER_UNROLL
            for (int i = 0; i < Q; ++i) {
              const std::int64_t at = r * kRun + part * 32;
              const I next = S::dot_q8(w, codes[i] + at, minus_128_sum[i][at / 32]);
              dot[i] = part == 0 ? next : S::add_i(dot[i], next);
            }
          }
          const F scale = S::load_f16(scales);
          PONDER_UNROLL
          for (int i = 0; i < Q; ++i)
            sum[i] = S::fma(S::mul(S::to_float(dot[i]), scale), S::set1(d[i][r]), sum[i]);
        }
        PONDER_UNROLL
        for (int i = 0; i < Q; ++i)
          S::store(p[i] + g * 16, sum[i]);
      }
    }

    /// Weights times the 64 value scales of one run, in 14 bits: byte q of dword j is position
    /// 16 q + j.
    void weights(const std::byte* scales) {
      F scale[4];
      PONDER_UNROLL
      for (int q = 0; q < 4; ++q)
        scale[q] = S::load_f16(scales + 32 * q);
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i) {
        if (seen[i] <= 0) {
          clear(i, 0.0f);
          continue;
        }
        F w[4];
        // Scales of positions that the vector does not see may be anything.
        PONDER_UNROLL
        for (int q = 0; q < 4; ++q) {
          const F weight = S::load(p[i] + 16 * q);
          w[q] = S::select_lt(S::zero(), weight, S::mul(weight, scale[q]), S::zero());
        }
        const std::int32_t bits = Codes::largest_bits(w);
        const float most = Codes::float_of(bits);
        if (bits >= Codes::kInfinity || most < 1e-30f) {
          clear(i, bits >= Codes::kInfinity ? __builtin_nanf("") : 0.0f);
          continue;
        }
        largest[i] = most * (1.0f / 16383.0f);
        const F inverse = S::set1(16383.0f / most);
        I n[4];
        PONDER_UNROLL
        for (int q = 0; q < 4; ++q)
          n[q] = S::to_int(S::mul(w[q], inverse));
        const I even = S::or_i(n[0], S::template shl<16>(n[2]));
        const I odd = S::or_i(n[1], S::template shl<16>(n[3]));
        const I seven = S::set1_i(0x007f007f), upper = S::set1_i(0x7f007f00);
        store(low[i], S::or_i(S::and_i(even, seven), S::template shl<8>(S::and_i(odd, seven))));
        store(high[i], S::or_i(S::and_i(S::template shr<7>(even), seven),
                               S::and_i(S::template shl<1>(odd), upper)));
      }
    }
    void clear(int i, float factor) {
      largest[i] = factor;
      std::memset(high[i], 0, kBlock);
      std::memset(low[i], 0, kBlock);
    }
    static void store(std::uint8_t* to, I x) {
      S::store(reinterpret_cast<float*>(to), S::floats(x));
    }

    /// 32 dimensions from `at`; more vectors than four take 16 at a time, to stay in registers.
    void outputs(const std::byte* values, std::int64_t rows, std::int64_t at) {
      if constexpr (Q <= 4) {
        half_outputs<2>(values, rows, at, 0);
      } else {
        half_outputs<1>(values, rows, at, 0);
        half_outputs<1>(values, rows, at, 1);
      }
    }
    template <int V>
    PONDER_INLINE void half_outputs(const std::byte* values, std::int64_t rows, std::int64_t at,
                                    int first) {
      I upper[Q][V], lower[Q][V];
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i)
        PONDER_UNROLL
      for (int v = 0; v < V; ++v)
        upper[i][v] = lower[i][v] = S::set1_i(0);
      for (std::int64_t j = 0; j < rows; ++j, values += dim * 4 * Form::kBits / 8) {
        I c[V];
        PONDER_UNROLL
        for (int v = 0; v < V; ++v)
          c[v] = form.values(values, first + v);
        PONDER_UNROLL
        for (int i = 0; i < Q; ++i)
          PONDER_UNROLL
        for (int v = 0; v < V; ++v) {
          upper[i][v] = S::dot4_weights(upper[i][v], c[v], high[i] + 4 * j);
          lower[i][v] = S::dot4_weights(lower[i][v], c[v], low[i] + 4 * j);
        }
      }
      PONDER_UNROLL
      for (int i = 0; i < Q; ++i) {
        // Adding 0 could still turn -0 into 0.
        if (seen[i] <= 0) continue;
        PONDER_UNROLL
        for (int v = 0; v < V; ++v) {
          float* to = o[i] + at + 16 * (first + v);
          const F sum = S::to_float(S::add_i(S::template shl<7>(upper[i][v]), lower[i][v]));
          S::store(to, S::fma(sum, S::set1(largest[i]), S::load(to)));
        }
      }
    }

    void finish(int i, float* y) {
      const F inverse = S::set1(1.0f / l[i]);
      for (std::int64_t r = 0; r < runs; ++r) {
        F x[kParts];
        PONDER_UNROLL
        for (int j = 0; j < kParts; ++j)
          x[j] = S::mul(S::load(o[i] + r * kRun + 16 * j), inverse);
        if constexpr (Form::kRotated) Codes::rotate_back(x);
        PONDER_UNROLL
        for (int j = 0; j < kParts; ++j)
          S::store(y + r * kRun + 16 * j, x[j]);
      }
    }
  };
};

}  // namespace ponder::kernels
