#pragma once
// gated_delta, gated_delta_gates.
#include <cstring>

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
    CHECK(op.dk > 0 && op.dk % 4 == 0 && op.dk <= kMaxDk && op.dv > 0 && op.dv % 16 == 0);
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
  static constexpr std::int64_t kMaxDk = 1024;

  template <int W>
  static void choose(const GatedDelta& op, std::int64_t head, std::int64_t strip) {
    if (op.dv / 16 - strip >= W) {
      float* state = op.state + (head * (op.dv / 16) + strip) * op.dk * 16;
      if (op.leave_state) return run_copy<W>(op, state, head, strip);
      if (op.o == nullptr) return run_strips<W, false>(op, state, head, strip);
      return run_strips<W, true>(op, state, head, strip);
    }
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

  /// Only what the strips hold of this stack is touched: 8 KiB a strip at dk = 128.
  template <int W>
  static void run_copy(const GatedDelta& op, const float* state, std::int64_t head,
                       std::int64_t strip) {
    if (op.o == nullptr) return;
    alignas(64) float copy[W * kMaxDk * 16];
    std::memcpy(copy, state, static_cast<std::size_t>(W * op.dk * 16) * sizeof(float));
    run_strips<W, true>(op, copy, head, strip);
  }

  /// W strips of sixteen value columns of one head over all tokens. One pass over the state for
  /// each token: it writes the token's update, reads its output from the new state, and recalls
  /// the next token's key from it. (Three passes took twice as long: the state's loads and stores
  /// were the limit.)
  template <int W, bool kOutput>
  static void run_strips(const GatedDelta& op, float* state, std::int64_t head,
                         std::int64_t strip) {
    const std::int64_t key_offset = head % op.k_heads * op.dk;
    const float* k = op.k + key_offset;
    const float* q = kOutput ? op.q + key_offset : k;
    const float* v = op.v + head * op.dv + strip * 16;
    float* o = kOutput ? op.o + head * op.dv + strip * 16 : nullptr;
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
        recalled = pass<W, true, kOutput>(state, op.dk, decay, delta, q, k, k + op.qkv_stride, o);
      } else {
        pass<W, false, kOutput>(state, op.dk, decay, delta, q, k, k, o);
      }
      q += op.qkv_stride;
      k += op.qkv_stride;
      v += op.qkv_stride;
      if constexpr (kOutput) o += op.v_heads * op.dv;
    }
  }

  template <int W, bool kRecallNext, bool kOutput>
  PONDER_INLINE static Sums<W> pass(float* state, std::int64_t dk, F decay, const F (&delta)[W],
                                    const float* q, const float* k, const float* next_k, float* o) {
    Sums<W> out, recalled;
    for (std::int64_t i = 0; i < dk; i += 4) {
      PONDER_UNROLL
      for (int j = 0; j < 4; ++j) {
        const F key = S::set1(k[i + j]), next = S::set1(next_k[i + j]);
        const F query = S::set1(q[i + j]);
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
          if constexpr (kOutput) out.part[w][j] = S::fma(updated, query, out.part[w][j]);
          if constexpr (kRecallNext)
            recalled.part[w][j] = S::fma(updated, next, recalled.part[w][j]);
        }
      }
    }
    if constexpr (kOutput) {
      PONDER_UNROLL
      for (int w = 0; w < W; ++w)
        S::store(o + w * 16, out.total(w));
    }
    return recalled;
  }
};

}  // namespace ponder::kernels
