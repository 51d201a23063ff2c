#pragma once
// The running softmax of one query vector over blocks of 64 positions: what all storage forms of
// keys and values share.
#include "kernels/cpu/math.h"
#include "kernels/cpu/unroll.h"
#include "kernels/ops/attention.h"

namespace ponder::kernels {

template <class S>
struct RunningSoftmax {
  using F = typename S::F;
  static constexpr std::int64_t kBlock = kKvBlockPositions;

  /// p: scores; of the first `seen` positions to exp(s - m) with the new maximum m, the rest to 0.
  /// l, the sum of weights so far, and o[dim], the weighted values, follow the maximum.
  static void soften(float* p, std::int64_t seen, std::int64_t dim, float& m, float& l, float* o) {
    for (std::int64_t j = seen; j < kBlock; ++j)
      p[j] = -__builtin_inff();
    F s[4];
    PONDER_UNROLL
    for (int g = 0; g < 4; ++g)
      s[g] = S::load(p + 16 * g);
    const float block_max = S::reduce_max(S::max(S::max(s[0], s[1]), S::max(s[2], s[3])));
    const float next = block_max > m ? block_max : m;
    const F shift = S::set1(next);
    PONDER_UNROLL
    for (int g = 0; g < 4; ++g) {
      s[g] = vector_exp<S>(S::sub(s[g], shift));
      S::store(p + 16 * g, s[g]);
    }
    for (std::int64_t j = seen; j < kBlock; ++j)
      p[j] = 0.0f;
    PONDER_UNROLL
    for (int g = 0; g < 4; ++g)
      s[g] = S::load(p + 16 * g);
    const float sum = S::reduce_add(S::add(S::add(s[0], s[1]), S::add(s[2], s[3])));
    if (next > m) {
      float keep[16];
      S::store(keep, vector_exp<S>(S::sub(S::set1(m), shift)));
      l = l * keep[0];
      const F factor = S::set1(keep[0]);
      for (std::int64_t d = 0; d < dim; d += 16)
        S::store(o + d, S::mul(S::load(o + d), factor));
    }
    l = l + sum;
    m = next;
  }
};

}  // namespace ponder::kernels
