#pragma once
// route, mix.
#include "engine/base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/pieces.h"
#include "kernels/ops/mixture.h"

namespace ponder::kernels {

template <class S>
struct MixtureCpu {
  using F = typename S::F;

  static void route(const Stream& stream, const Route& op) {
    CHECK(op.used >= 1 && op.used <= op.experts && op.experts <= kMaxExperts);
    Pieces<S>::for_ranges(stream, op.n, op.experts * op.used,
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t t = first; t < last; ++t)
                              route_row(op.logits + t * op.experts, op.experts, op.used,
                                        op.ids + t * op.used, op.weights + t * op.used);
                          });
  }

  static void mix(const Stream& stream, const Mix& op) {
    Pieces<S>::for_ranges(stream, op.n, op.cols * (op.used + 2),
                          [&](std::int64_t first, std::int64_t last) {
                            for (std::int64_t t = first; t < last; ++t)
                              mix_row(op, t);
                          });
  }

 private:
  static void route_row(const float* logits, std::int64_t experts, std::int64_t used,
                        std::int32_t* ids, float* weights) {
    bool taken[kMaxExperts];
    for (std::int64_t e = 0; e < experts; ++e)
      taken[e] = false;
    for (std::int64_t r = 0; r < used; ++r) {
      std::int64_t best = -1;
      for (std::int64_t e = 0; e < experts; ++e)
        if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
      taken[best] = true;
      ids[r] = static_cast<std::int32_t>(best);
    }
    const float most = logits[ids[0]];
    float sum = 0;
    for (std::int64_t i = 0; i < experts; i += 16) {
      const std::int64_t n = experts - i < 16 ? experts - i : 16;
      alignas(64) float e[16];
      S::store(e, vector_exp<S>(S::sub(S::load_n(logits + i, n), S::set1(most))));
      for (std::int64_t j = 0; j < n; ++j)
        sum += e[j];
    }
    float chosen = 0;
    for (std::int64_t r = 0; r < used; ++r) {
      alignas(64) float e[16];
      S::store(e, vector_exp<S>(S::set1(logits[ids[r]] - most)));
      weights[r] = e[0] / sum;
      chosen += weights[r];
    }
    if (chosen < 0x1p-14f) chosen = 0x1p-14f;
    for (std::int64_t r = 0; r < used; ++r)
      weights[r] /= chosen;
  }

  static float sigmoid_of_dot(const float* x, const float* w, std::int64_t cols) {
    F sum[2] = {S::zero(), S::zero()};
    for (std::int64_t i = 0, v = 0; i < cols; i += 16, v ^= 1) {
      const std::int64_t n = cols - i < 16 ? cols - i : 16;
      sum[v] = S::fma(S::load_n(x + i, n), S::load_n(w + i, n), sum[v]);
    }
    alignas(64) float out[16];
    S::store(out, vector_sigmoid<S>(S::set1(S::reduce_add(S::add(sum[0], sum[1])))));
    return out[0];
  }

  static void mix_row(const Mix& op, std::int64_t t) {
    const std::int32_t* slots = op.slots + t * op.used;
    const float* weights = op.weights + t * op.used;
    const float* shared = op.shared != nullptr ? op.shared + t * op.cols : nullptr;
    const F gate = S::set1(
        shared != nullptr ? sigmoid_of_dot(op.gate_x + t * op.cols, op.gate_w, op.cols) : 0.0f);
    for (std::int64_t i = 0; i < op.cols; i += 16) {
      const std::int64_t n = op.cols - i < 16 ? op.cols - i : 16;
      F y = S::zero();
      for (std::int64_t r = 0; r < op.used; ++r)
        y = S::fma(S::set1(weights[r]), S::load_n(op.x + slots[r] * op.cols + i, n), y);
      if (shared != nullptr) y = S::fma(gate, S::load_n(shared + i, n), y);
      S::store_n(op.y + t * op.cols + i, y, n);
    }
  }
};

}  // namespace ponder::kernels
