#pragma once
// The two ends of a mixture of experts; the experts between them are matrix products.
//
// route: p = softmax(logits) over all experts, the `used` largest of it (of equal logits the lower
// number), and their weights renormalised:
//
//   weight_r = p_r / max(sum_r p_r, 2^-14)
//
// in descending order of p. 2^-14 is the least sum that llama.cpp divides by; a softmax over at
// most kMaxExperts cannot come below it.
//
// mix: y[t] = sum_r weights[t, r] * x[slots[t, r]], added in order of r, then
//      y[t] += sigmoid(gate_w . gate_x[t]) * shared[t]   where there is a shared expert.
#include <cstdint>

namespace ponder::kernels {

inline constexpr std::int64_t kMaxExperts = 4096;

struct Route {
  const float* logits = nullptr;  ///< [n, experts]
  std::int32_t* ids = nullptr;    ///< [n, used], written: valid numbers even for NaN logits
  float* weights = nullptr;       ///< [n, used], written
  std::int64_t n = 0;
  std::int64_t experts = 0;  ///< at most kMaxExperts
  std::int64_t used = 0;     ///< at most experts
};

struct Mix {
  const float* x = nullptr;             ///< [slots, cols]
  const std::int32_t* slots = nullptr;  ///< [n, used], rows of x
  const float* weights = nullptr;       ///< [n, used]
  float* y = nullptr;                   ///< [n, cols], written; no part of x, shared or gate_x
  std::int64_t n = 0;
  std::int64_t used = 0;
  std::int64_t cols = 0;
  const float* shared = nullptr;  ///< [n, cols], or null: no shared expert
  const float* gate_x = nullptr;  ///< [n, cols], with `shared`
  const float* gate_w = nullptr;  ///< [cols], with `shared`
};

}  // namespace ponder::kernels
