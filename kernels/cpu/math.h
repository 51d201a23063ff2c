#pragma once
// exp, sigmoid, SiLU and softplus on sixteen lanes. A lane's result depends on that lane only, so
// vector tails (padded with zeros) give the same bits. Measured against double over the whole
// range: exp within 1.25 ulp, the others within 3 (tests/unit/kernels/math_test.cc).
#include <cstdint>

namespace ponder::kernels {

/// e^x: x = n ln 2 + r, |r| <= ln 2 / 2; a polynomial for e^r; 2^n in two factors, so that results
/// below the normal range round once and results above it become infinity. NaN stays NaN.
template <class S>
inline typename S::F vector_exp(typename S::F x) {
  using F = typename S::F;
  x = S::min(S::set1(89.0f), x);    // e^89 > FLT_MAX
  x = S::max(S::set1(-104.0f), x);  // e^-104 < half the least subnormal
  const typename S::I n = S::to_int(S::mul(x, S::set1(1.44269504088896341f)));
  const F whole = S::to_float(n);
  F r = S::fma(whole, S::set1(-0.693359375f), x);  // few bits: whole * this is exact
  r = S::fma(whole, S::set1(2.12194440e-4f), r);
  F p = S::set1(1.9875691500e-4f);
  p = S::fma(p, r, S::set1(1.3981999507e-3f));
  p = S::fma(p, r, S::set1(8.3334519073e-3f));
  p = S::fma(p, r, S::set1(4.1665795894e-2f));
  p = S::fma(p, r, S::set1(1.6666665459e-1f));
  p = S::fma(p, r, S::set1(5.0000001201e-1f));
  p = S::fma(p, S::mul(r, r), r);
  p = S::add(p, S::set1(1.0f));
  const typename S::I half = S::template sar<1>(n);
  const typename S::I bias = S::set1_i(127);
  p = S::mul(p, S::floats(S::template shl<23>(S::add_i(half, bias))));
  return S::mul(p, S::floats(S::template shl<23>(S::add_i(S::sub_i(n, half), bias))));
}

/// 1 / (1 + e^-x)
template <class S>
inline typename S::F vector_sigmoid(typename S::F x) {
  const typename S::F one = S::set1(1.0f);
  return S::div(one, S::add(one, vector_exp<S>(S::sub(S::zero(), x))));
}

/// x / (1 + e^-x)
template <class S>
inline typename S::F vector_silu(typename S::F x) {
  return S::div(x, S::add(S::set1(1.0f), vector_exp<S>(S::sub(S::zero(), x))));
}

/// ln(1 + e) for e in [0, 1]: u = 1 + e rounded, ln u by a polynomial, and what the rounding of u
/// lost (e - (u - 1), exact) divided by u.
template <class S>
inline typename S::F vector_log1p(typename S::F e) {
  using F = typename S::F;
  const F one = S::set1(1.0f);
  const F u = S::add(one, e);
  const F lost = S::sub(e, S::sub(u, one));
  // m in [sqrt(1/2), sqrt(2)), ln u = ln m + k ln 2 with k 0 or 1
  const F limit = S::set1(1.41421356f);
  const F m = S::select_lt(u, limit, u, S::mul(u, S::set1(0.5f)));
  const F k = S::select_lt(u, limit, S::zero(), one);
  const F f = S::sub(m, one);
  F p = S::set1(7.0376836292e-2f);
  p = S::fma(p, f, S::set1(-1.1514610310e-1f));
  p = S::fma(p, f, S::set1(1.1676998740e-1f));
  p = S::fma(p, f, S::set1(-1.2420140846e-1f));
  p = S::fma(p, f, S::set1(1.4249322787e-1f));
  p = S::fma(p, f, S::set1(-1.6668057665e-1f));
  p = S::fma(p, f, S::set1(2.0000714765e-1f));
  p = S::fma(p, f, S::set1(-2.4999993993e-1f));
  p = S::fma(p, f, S::set1(3.3333331174e-1f));
  const F square = S::mul(f, f);
  F low = S::mul(S::mul(p, f), square);
  low = S::fma(k, S::set1(-2.12194440e-4f), low);
  low = S::fma(square, S::set1(-0.5f), low);
  low = S::add(low, S::div(lost, u));
  return S::fma(k, S::set1(0.693359375f), S::add(f, low));
}

/// ln(1 + e^x) = max(x, 0) + ln(1 + e^-|x|). NaN stays NaN.
template <class S>
inline typename S::F vector_softplus(typename S::F x) {
  const typename S::F zero = S::zero();
  const typename S::F down = S::min(S::sub(zero, x), x);  // -|x|
  return S::add(S::max(zero, x), vector_log1p<S>(vector_exp<S>(down)));
}

}  // namespace ponder::kernels
