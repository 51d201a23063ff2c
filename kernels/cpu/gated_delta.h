#pragma once
// gated_delta, gated_delta_gates.
#include "engine/base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/gated_delta.h"

namespace ponder::kernels {

template <class S>
struct GatedDeltaCpu {
  using F = typename S::F;

  static void run(const Stream& stream, const GatedDelta& op) {
    CHECK(op.dk > 0 && op.dk % 4 == 0 && op.dv > 0 && op.dv % 16 == 0);
    CHECK(op.k_heads > 0 && op.v_heads > 0);
    constexpr std::int64_t kWide = S::kStrips;
    const std::int64_t strips = op.dv / 16, groups = (strips + kWide - 1) / kWide;
    Pieces<S>::for_ranges(stream, op.v_heads * groups, op.n * op.dk * 32 * kWide,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t g = first; g < last; ++g)
                              choose<S::kStrips>(op, g / groups, g % groups * kWide);
                          });
  }

  static void gates(const Stream&, const GatedDeltaGates& op) {
    const std::int64_t a_stride = op.a_stride != 0 ? op.a_stride : op.heads;
    const std::int64_t b_stride = op.b_stride != 0 ? op.b_stride : op.heads;
    for (std::int64_t t = 0; t < op.n; ++t)
      for (std::int64_t h = 0; h < op.heads; h += 16) {
        const std::int64_t n = op.heads - h < 16 ? op.heads - h : 16;
        const F a = S::add(S::load_n(op.a + t * a_stride + h, n), S::load_n(op.ssm_dt + h, n));
        const F b = S::load_n(op.b + t * b_stride + h, n);
        const F g = S::mul(S::load_n(op.ssm_a + h, n), vector_softplus<S>(a));
        S::store_n(op.decay + t * op.heads + h, vector_exp<S>(g), n);
        S::store_n(op.beta + t * op.heads + h, vector_sigmoid<S>(b), n);
      }
  }

 private:
  template <int W>
  static void choose(const GatedDelta& op, std::int64_t head, std::int64_t strip) {
    if (op.dv / 16 - strip >= W) return run_strips<W>(op, head, strip);
    if constexpr (W > 1) choose<W - 1>(op, head, strip);
  }

  /// Sums over the key index go to four partial sums (i mod 4), which also hides the latency of
  /// the fused multiply-add.
  template <int W>
  struct Sums {
    F part[W][4];
    PONDER_INLINE Sums() {
      PONDER_UNROLL
      for (int w = 0; w < W; ++w) {
        PONDER_UNROLL
        for (int j = 0; j < 4; ++j)
          part[w][j] = S::zero();
      }
    }
    PONDER_INLINE F total(int w) const {
      return S::add(S::add(part[w][0], part[w][1]), S::add(part[w][2], part[w][3]));
    }
  };

  /// W strips of sixteen value columns of one head over all tokens. One pass over the state for
  /// each token: it writes the token's update, reads its output from the new state, and recalls
  /// the next token's key from it. (Three passes took twice as long: the state's loads and stores
  /// were the limit.)
  template <int W>
  static void run_strips(const GatedDelta& op, std::int64_t head, std::int64_t strip) {
    float* state = op.state + (head * (op.dv / 16) + strip) * op.dk * 16;
    const std::int64_t key_offset = head % op.k_heads * op.dk;
    const float* q = op.q + key_offset;
    const float* k = op.k + key_offset;
    const float* v = op.v + head * op.dv + strip * 16;
    float* o = op.o + head * op.dv + strip * 16;
    if (op.n == 0) return;
    Sums<W> recalled;
    for (std::int64_t i = 0; i < op.dk; i += 4) {
      PONDER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const F key = S::set1(k[i + j]);
        PONDER_UNROLL
        for (int w = 0; w < W; ++w)
          recalled.part[w][j] =
              S::fma(S::load(state + (w * op.dk + i + j) * 16), key, recalled.part[w][j]);
      }
    }
    for (std::int64_t t = 0; t < op.n; ++t) {
      const F decay = S::set1(op.decay[t * op.v_heads + head]);
      const F beta = S::set1(op.beta[t * op.v_heads + head]);
      F delta[W];
      PONDER_UNROLL
      for (int w = 0; w < W; ++w)
        // The decay is a factor of the whole sum: S^T k of the decayed state.
        delta[w] = S::mul(beta, S::sub(S::load(v + w * 16), S::mul(decay, recalled.total(w))));
      if (t + 1 < op.n) {
        recalled = pass<W, true>(state, op.dk, decay, delta, q, k, k + op.qkv_stride, o);
      } else {
        pass<W, false>(state, op.dk, decay, delta, q, k, k, o);
      }
      q += op.qkv_stride;
      k += op.qkv_stride;
      v += op.qkv_stride;
      o += op.v_heads * op.dv;
    }
  }

  template <int W, bool kRecallNext>
  PONDER_INLINE static Sums<W> pass(float* state, std::int64_t dk, F decay, const F (&delta)[W],
                                    const float* q, const float* k, const float* next_k, float* o) {
    Sums<W> out, recalled;
    for (std::int64_t i = 0; i < dk; i += 4) {
      PONDER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const F key = S::set1(k[i + j]), query = S::set1(q[i + j]), next = S::set1(next_k[i + j]);
        // All loads before the stores: rows of neighbouring strips lie 8 KiB apart, and a load
        // behind a store to the same offset of a page waits for it.
        F row[W];
        PONDER_UNROLL
        for (int w = 0; w < W; ++w)
          row[w] = S::load(state + (w * dk + i + j) * 16);
        PONDER_UNROLL
        for (int w = 0; w < W; ++w) {
          const F updated = S::fma(key, delta[w], S::mul(decay, row[w]));
          S::store(state + (w * dk + i + j) * 16, updated);
          out.part[w][j] = S::fma(updated, query, out.part[w][j]);
          if constexpr (kRecallNext)
            recalled.part[w][j] = S::fma(updated, next, recalled.part[w][j]);
        }
      }
    }
    PONDER_UNROLL
    for (int w = 0; w < W; ++w)
      S::store(o + w * 16, out.total(w));
    return recalled;
  }
};

}  // namespace ponder::kernels
