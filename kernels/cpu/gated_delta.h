#pragma once
// gated_delta, gated_delta_gates.
#include "engine/base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/ops/gated_delta.h"

namespace ponder::kernels {

template <class S>
struct GatedDeltaCpu {
  using F = typename S::F;

  static void run(const Stream& stream, const GatedDelta& op) {
    CHECK(op.dk > 0 && op.dk % 4 == 0 && op.dv > 0 && op.dv % 16 == 0);
    CHECK(op.k_heads > 0 && op.v_heads > 0);
    const std::int64_t strips = op.dv / 16;
    Pieces<S>::for_ranges(stream, op.v_heads * strips, op.n * op.dk * 32,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t s = first; s < last; ++s)
                              strip(op, s / strips, s % strips);
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
  /// Sixteen value columns of one head over all tokens. Sums over the key index go to four
  /// partial sums (i mod 4), which also hides the latency of the fused multiply-add.
  static void strip(const GatedDelta& op, std::int64_t head, std::int64_t index) {
    float* state = op.state + (head * (op.dv / 16) + index) * op.dk * 16;
    const std::int64_t key_head = head % op.k_heads;
    for (std::int64_t t = 0; t < op.n; ++t) {
      const float* q = op.q + t * op.qkv_stride + key_head * op.dk;
      const float* k = op.k + t * op.qkv_stride + key_head * op.dk;
      const F v = S::load(op.v + t * op.qkv_stride + head * op.dv + index * 16);
      const F decay = S::set1(op.decay[t * op.v_heads + head]);
      const F beta = S::set1(op.beta[t * op.v_heads + head]);

      F sum[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
      for (std::int64_t i = 0; i < op.dk; i += 4)
        for (int j = 0; j < 4; ++j)
          sum[j] = S::fma(S::load(state + (i + j) * 16), S::set1(k[i + j]), sum[j]);
      // The decay is a factor of the whole sum: S^T k of the decayed state.
      const F recalled = S::mul(decay, S::add(S::add(sum[0], sum[1]), S::add(sum[2], sum[3])));
      const F delta = S::mul(beta, S::sub(v, recalled));

      F out[4] = {S::zero(), S::zero(), S::zero(), S::zero()};
      for (std::int64_t i = 0; i < op.dk; i += 4)
        for (int j = 0; j < 4; ++j) {
          float* row = state + (i + j) * 16;
          const F updated = S::fma(S::set1(k[i + j]), delta, S::mul(decay, S::load(row)));
          S::store(row, updated);
          out[j] = S::fma(updated, S::set1(q[i + j]), out[j]);
        }
      S::store(op.o + (t * op.v_heads + head) * op.dv + index * 16,
               S::add(S::add(out[0], out[1]), S::add(out[2], out[3])));
    }
  }
};

}  // namespace ponder::kernels
