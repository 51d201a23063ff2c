#pragma once
// Floats to the integer codes of quantised keys, values and queries, and the rotation of r4.
// What they mean: ops/attention.h; where they lie: kv_layout.h.
#include <cstring>

#include "kernels/cpu/kv_layout.h"
#include "kernels/cpu/unroll.h"

namespace ponder::kernels {

template <class S>
struct KvCodes {
  using F = typename S::F;
  using I = typename S::I;

  /// Magnitudes as integers order like the floats, with infinity and NaN above all numbers.
  static constexpr std::int32_t kInfinity = 0x7f800000;
  template <int N>
  static std::int32_t largest_bits(const F (&x)[N]) {
    const I magnitude = S::set1_i(0x7fffffff);
    I most = S::and_i(S::bits(x[0]), magnitude);
    PONDER_UNROLL
    for (int i = 1; i < N; ++i)
      most = S::max_i(most, S::and_i(S::bits(x[i]), magnitude));
    return S::reduce_max_i(most);
  }
  static float float_of(std::int32_t bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
  }

  /// A query's scale d = max |x| / 127 and codes x / d, to nearest even.
  template <int N>
  static float quantise_query(const F (&x)[N], std::int8_t* codes) {
    const std::int32_t bits = largest_bits(x);
    const float largest = float_of(bits);
    if (bits >= kInfinity || largest < 1e-30f) {  // 127 / largest must stay finite
      std::memset(codes, 0, 16 * N);
      return bits >= kInfinity ? __builtin_nanf("") : 0.0f;
    }
    const F inverse = S::set1(127.0f / largest);
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      S::store_i8(codes + 16 * i, S::to_int(S::mul(x[i], inverse)));
    return largest / 127.0f;
  }

  /// f16 bits of a scale; finite stays finite.
  static std::uint16_t half_of(float d) {
    std::byte bytes[32];
    S::store_f16(bytes, S::set1(d));
    std::uint16_t half;
    std::memcpy(&half, bytes, 2);
    return half == 0x7c00 ? std::uint16_t{0x7bff} : half;
  }
  static float float_of_half(std::uint16_t half) {
    std::uint16_t halves[16] = {half};
    float values[16];
    S::store(values, S::load_f16(reinterpret_cast<const std::byte*>(halves)));
    return values[0];
  }
  static constexpr std::uint16_t kHalfNaN = 0x7e00;

  /// 32 values to q8_0: returns d as f16.
  static std::uint16_t quantise_q8_0(const float* x, std::int8_t* codes) {
    const F parts[2] = {S::load(x), S::load(x + 16)};
    const std::int32_t bits = largest_bits(parts);
    if (bits >= kInfinity || bits == 0) {
      std::memset(codes, 0, 32);
      return bits == 0 ? std::uint16_t{0} : kHalfNaN;
    }
    const float largest = float_of(bits);
    std::uint16_t half = half_of(largest / 127.0f);
    // Where f16 is subnormal its steps are coarse: the next one, rather than cutting the largest.
    if (half < 0x7bff && float_of_half(half) * 127.5f < largest) ++half;
    const F inverse = S::set1(1.0f / float_of_half(half));
    PONDER_UNROLL
    for (int i = 0; i < 2; ++i) {
      const F scaled = S::mul(parts[i], inverse);
      S::store_i8(codes + 16 * i,
                  S::to_int(S::max(S::set1(-127.0f), S::min(S::set1(127.0f), scaled))));
    }
    return half;
  }

  /// x to H x, H the Hadamard matrix of order 16 N with entries +-1.
  template <int N>
  PONDER_INLINE static void hadamard(F (&x)[N]) {
    PONDER_UNROLL
    for (int i = 0; i < N; ++i) {
      x[i] = S::fma(x[i], S::load(kAlternate[0]), S::template swap<1>(x[i]));
      x[i] = S::fma(x[i], S::load(kAlternate[1]), S::template swap<2>(x[i]));
      x[i] = S::fma(x[i], S::load(kAlternate[2]), S::template swap<4>(x[i]));
      x[i] = S::fma(x[i], S::load(kAlternate[3]), S::template swap<8>(x[i]));
    }
    PONDER_UNROLL
    for (int step = 1; step < N; step *= 2)
      PONDER_UNROLL
    for (int i = 0; i < N; ++i) {
      if ((i & step) != 0) continue;
      const F a = x[i], b = x[i + step];
      x[i] = S::add(a, b);
      x[i + step] = S::sub(a, b);
    }
  }

  template <int N>
  static constexpr float root() {  // of 16 N
    static_assert(N == 4 || N == 8);
    return N == 4 ? 8.0f : 11.3137084989847604f;
  }
  template <int N>
  static void rotate(F (&x)[N]) {
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      x[i] = S::mul(x[i], S::load(kSigns.v + 16 * i));
    hadamard(x);
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      x[i] = S::mul(x[i], S::set1(1.0f / root<N>()));
  }
  template <int N>
  static void rotate_back(F (&x)[N]) {
    hadamard(x);
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      x[i] = S::mul(x[i], S::mul(S::load(kSigns.v + 16 * i), S::set1(1.0f / root<N>())));
  }

  /// 16 N values to r4: indices 0..15 into kv_layout::kCentroids; returns d as f16.
  template <int N>
  static std::uint16_t quantise_r4(const float* from, std::int8_t* indices) {
    F x[N];
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      x[i] = S::load(from + 16 * i);
    const std::int32_t bits = largest_bits(x);
    if (bits >= kInfinity || bits == 0) {
      std::memset(indices, 0, 16 * N);
      return bits == 0 ? std::uint16_t{0} : kHalfNaN;
    }
    // By a power of two to about 1, so that squares neither overflow nor vanish.
    std::int32_t exponent = (bits >> 23) - 127;
    exponent = exponent > 126 ? 126 : exponent < -126 ? -126 : exponent;
    const F down = S::set1(float_of((127 - exponent) << 23));
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      x[i] = S::mul(x[i], down);
    rotate(x);
    const float norm = length(x);
    const F unit = S::set1(root<N>() * kv_layout::kCentroidUnit / norm);
    F centroids[N];
    PONDER_UNROLL
    for (int i = 0; i < N; ++i) {
      const F z = S::mul(x[i], unit);
      F index = S::zero(), centroid = S::set1(kv_layout::kCentroids[0]);
      PONDER_UNROLL
      for (int k = 0; k < 15; ++k) {
        const float a = kv_layout::kCentroids[k], b = kv_layout::kCentroids[k + 1];
        const F threshold = S::set1(0.5f * (a + b));
        index = S::select_lt(threshold, z, S::set1(static_cast<float>(k + 1)), index);
        centroid = S::select_lt(threshold, z, S::set1(b), centroid);
      }
      S::store_i8(indices + 16 * i, S::to_int(index));
      centroids[i] = centroid;
    }
    return half_of(norm / length(centroids) * float_of((127 + exponent) << 23));
  }

 private:
  template <int N>
  static float length(const F (&x)[N]) {
    F squares = S::zero();
    PONDER_UNROLL
    for (int i = 0; i < N; ++i)
      squares = S::fma(x[i], x[i], squares);
    return __builtin_sqrtf(S::reduce_add(squares));
  }

  /// -1 where bit b of the lane's number is set.
  static constexpr float kAlternate[4][16] = {
      {1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1},
      {1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1},
      {1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1},
      {1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1}};
  struct Signs {
    float v[128];
  };
  static constexpr Signs signs() {
    Signs s{};
    for (int i = 0; i < 128; ++i)
      s.v[i] = kv_layout::rotation_sign(i);
    return s;
  }
  static constexpr Signs kSigns = signs();
};

}  // namespace ponder::kernels
