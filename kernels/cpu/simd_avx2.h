#pragma once
// Sixteen lanes in two AVX2 registers (AVX2, FMA, F16C). Meaning of each function: Plain in
// simd_plain.h. Only the translation unit compiled for AVX2 may include this; nothing here may get
// external linkage.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"

namespace ponder::kernels {
namespace {

#define PONDER_LANES __attribute__((always_inline)) static inline

struct Avx2 {
  struct F {
    __m256 a, b;  // lanes 0-7, 8-15
  };
  struct I {
    __m256i a, b;
  };
  static constexpr int kTile = 4;
  static constexpr int kQueries = 2;
  static constexpr int kGroups = 2;
  static constexpr int kStrips = 1;
  static constexpr bool kDotsTakeTurns = false;

  /// All ones in the first n lanes (n in 0..8).
  PONDER_LANES __m256i first(std::int64_t n) {
    const __m256i index = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), index);
  }
  PONDER_LANES std::int64_t low_part(std::int64_t n) { return n < 8 ? n : 8; }
  PONDER_LANES std::int64_t high_part(std::int64_t n) { return n < 8 ? 0 : n - 8; }

  PONDER_LANES F zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
  PONDER_LANES F set1(float x) {
    const __m256 v = _mm256_set1_ps(x);
    return {v, v};
  }
  PONDER_LANES F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  PONDER_LANES F load_n(const float* p, std::int64_t n) {
    if (n <= 8) return {_mm256_maskload_ps(p, first(n)), _mm256_setzero_ps()};
    return {_mm256_loadu_ps(p), _mm256_maskload_ps(p + 8, first(n - 8))};
  }
  PONDER_LANES void store(float* p, F x) {
    _mm256_storeu_ps(p, x.a);
    _mm256_storeu_ps(p + 8, x.b);
  }
  PONDER_LANES void store_n(float* p, F x, std::int64_t n) {
    _mm256_maskstore_ps(p, first(low_part(n)), x.a);
    if (n > 8) _mm256_maskstore_ps(p + 8, first(high_part(n)), x.b);
  }
  PONDER_LANES __m128i load_half(const std::byte* p) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  }
  PONDER_LANES F load_f16(const std::byte* p) {
    return {_mm256_cvtph_ps(load_half(p)), _mm256_cvtph_ps(load_half(p + 16))};
  }
  PONDER_LANES __m256 widen_bf16(__m128i x) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  PONDER_LANES F load_bf16(const std::byte* p) {
    return {widen_bf16(load_half(p)), widen_bf16(load_half(p + 16))};
  }
  PONDER_LANES F load_f32(const std::byte* p) {
    const I x = load_i(p);
    return floats(x);
  }
  PONDER_LANES void store_f16(std::byte* p, F x) {
    constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.a, kNearest));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm256_cvtps_ph(x.b, kNearest));
  }
  PONDER_LANES F add(F x, F y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
  PONDER_LANES F sub(F x, F y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
  PONDER_LANES F mul(F x, F y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
  PONDER_LANES F div(F x, F y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
  PONDER_LANES F fma(F x, F y, F z) {
    return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
  }
  PONDER_LANES F min(F x, F y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
  PONDER_LANES F max(F x, F y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
  PONDER_LANES F select_lt(F x, F y, F yes, F no) {
    return {_mm256_blendv_ps(no.a, yes.a, _mm256_cmp_ps(x.a, y.a, _CMP_LT_OQ)),
            _mm256_blendv_ps(no.b, yes.b, _mm256_cmp_ps(x.b, y.b, _CMP_LT_OQ))};
  }
  PONDER_LANES float reduce_add(F x) {
    const __m256 eight = _mm256_add_ps(x.a, x.b);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  PONDER_LANES float reduce_max(F x) {
    const __m256 eight = _mm256_max_ps(x.a, x.b);
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  PONDER_LANES I bits(F x) { return {_mm256_castps_si256(x.a), _mm256_castps_si256(x.b)}; }
  PONDER_LANES F floats(I x) { return {_mm256_castsi256_ps(x.a), _mm256_castsi256_ps(x.b)}; }
  PONDER_LANES F to_float(I x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
  PONDER_LANES I to_int(F x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
  PONDER_LANES I set1_i(std::int32_t x) {
    const __m256i v = _mm256_set1_epi32(x);
    return {v, v};
  }
  PONDER_LANES I load_i(const std::byte* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
  }
  PONDER_LANES I load_u8(const std::byte* p) {
    const __m128i x = load_half(p);
    return {_mm256_cvtepu8_epi32(x), _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8))};
  }
  PONDER_LANES I load_i8(const std::byte* p) {
    const __m128i x = load_half(p);
    return {_mm256_cvtepi8_epi32(x), _mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))};
  }
  /// Values fit int8, so the saturating packs are exact.
  PONDER_LANES void store_i8(std::int8_t* p, I x) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  PONDER_LANES I add_i(I x, I y) {
    return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)};
  }
  PONDER_LANES I sub_i(I x, I y) {
    return {_mm256_sub_epi32(x.a, y.a), _mm256_sub_epi32(x.b, y.b)};
  }
  PONDER_LANES I and_i(I x, I y) {
    return {_mm256_and_si256(x.a, y.a), _mm256_and_si256(x.b, y.b)};
  }
  PONDER_LANES I or_i(I x, I y) { return {_mm256_or_si256(x.a, y.a), _mm256_or_si256(x.b, y.b)}; }
  PONDER_LANES I max_i(I x, I y) {
    return {_mm256_max_epi32(x.a, y.a), _mm256_max_epi32(x.b, y.b)};
  }
  template <int K>
  PONDER_LANES I shl(I x) {
    return {_mm256_slli_epi32(x.a, K), _mm256_slli_epi32(x.b, K)};
  }
  template <int K>
  PONDER_LANES I shr(I x) {
    return {_mm256_srli_epi32(x.a, K), _mm256_srli_epi32(x.b, K)};
  }
  template <int K>
  PONDER_LANES I sar(I x) {
    return {_mm256_srai_epi32(x.a, K), _mm256_srai_epi32(x.b, K)};
  }
  PONDER_LANES std::int32_t reduce_max_i(I x) {
    const __m256i eight = _mm256_max_epi32(x.a, x.b);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }
  PONDER_LANES std::int32_t reduce_add_i(I x) {
    const __m256i eight = _mm256_add_epi32(x.a, x.b);
    __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(four, _mm_shuffle_epi32(four, 0xb1)));
  }

  template <int K>
  PONDER_LANES F swap(F x) {
    if constexpr (K == 1) return {_mm256_permute_ps(x.a, 0xb1), _mm256_permute_ps(x.b, 0xb1)};
    if constexpr (K == 2) return {_mm256_permute_ps(x.a, 0x4e), _mm256_permute_ps(x.b, 0x4e)};
    if constexpr (K == 4)
      return {_mm256_permute2f128_ps(x.a, x.a, 1), _mm256_permute2f128_ps(x.b, x.b, 1)};
    if constexpr (K == 8) return {x.b, x.a};
  }
  PONDER_LANES I repeat16(const void* p) {
    const __m256i v = _mm256_broadcastsi128_si256(_mm_loadu_si128(static_cast<const __m128i*>(p)));
    return {v, v};
  }
  PONDER_LANES I lookup(I table, I index) {
    return {_mm256_shuffle_epi8(table.a, index.a), _mm256_shuffle_epi8(table.b, index.b)};
  }
  /// Pairs of at most 2 * 127 * 127 = 32258 fit 16 bits (128 as a code does not occur).
  PONDER_LANES I dot4_weights(I sum, I codes, const std::uint8_t* w) {
    const __m256i ones = _mm256_set1_epi16(1);
    int four;
    std::memcpy(&four, w, 4);
    const __m256i x = _mm256_set1_epi32(four);
    return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(_mm256_maddubs_epi16(x, codes.a), ones)),
            _mm256_add_epi32(sum.b, _mm256_madd_epi16(_mm256_maddubs_epi16(x, codes.b), ones))};
  }

  PONDER_LANES __m256i four_bytes(const std::int8_t* a) {
    int four;
    std::memcpy(&four, a, 4);
    return _mm256_set1_epi32(four);
  }
  /// vpmaddubsw adds two products in 16 bits. With |q| as its unsigned and a, carrying q's sign,
  /// as its signed operand that is at most 2 * 128 * 127 = 32512: no saturation, as |a| <= 127.
  PONDER_LANES __m256i dot4_signed(__m256i sum, __m256i codes, __m256i a) {
    const __m256i q = _mm256_xor_si256(codes, _mm256_set1_epi8(-128));
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(a, q));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
  }
  PONDER_LANES I dot_q8(const I (&w)[8], const std::int8_t* a, I) {
    I sum = set1_i(0);
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j) {
      const __m256i x = four_bytes(a + 4 * j);
      sum.a = dot4_signed(sum.a, w[j].a, x);
      sum.b = dot4_signed(sum.b, w[j].b, x);
    }
    return sum;
  }
  PONDER_LANES I dot_q8(const I (&w)[8], const std::int8_t* a, std::int32_t start) {
    return dot_q8(w, a, set1_i(start));
  }
  /// Codes up to 31: four pair sums of at most 2 * 31 * 127 = 7874 fit 16 bits.
  PONDER_LANES I dot_u5(const I (&w)[8], const std::int8_t* a, I start) {
    const __m256i ones = _mm256_set1_epi16(1);
    I sum = start;
    PONDER_UNROLL
    for (int j = 0; j < 8; j += 4) {
      __m256i low = _mm256_setzero_si256(), high = _mm256_setzero_si256();
      PONDER_UNROLL
      for (int i = j; i < j + 4; ++i) {
        const __m256i x = four_bytes(a + 4 * i);
        low = _mm256_add_epi16(low, _mm256_maddubs_epi16(w[i].a, x));
        high = _mm256_add_epi16(high, _mm256_maddubs_epi16(w[i].b, x));
      }
      sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(low, ones));
      sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(high, ones));
    }
    return sum;
  }
  /// Codes up to 63: two pair sums of at most 2 * 63 * 127 = 16002 fit 16 bits.
  PONDER_LANES I dot_u6(const I* w, const std::int8_t* a, I start) {
    const __m256i ones = _mm256_set1_epi16(1);
    I sum = start;
    PONDER_UNROLL
    for (int j = 0; j < 4; j += 2) {
      const __m256i x = four_bytes(a + 4 * j), y = four_bytes(a + 4 * j + 4);
      const __m256i low =
          _mm256_add_epi16(_mm256_maddubs_epi16(w[j].a, x), _mm256_maddubs_epi16(w[j + 1].a, y));
      const __m256i high =
          _mm256_add_epi16(_mm256_maddubs_epi16(w[j].b, x), _mm256_maddubs_epi16(w[j + 1].b, y));
      sum.a = _mm256_add_epi32(sum.a, _mm256_madd_epi16(low, ones));
      sum.b = _mm256_add_epi32(sum.b, _mm256_madd_epi16(high, ones));
    }
    return sum;
  }
};

#undef PONDER_LANES

}  // namespace
}  // namespace ponder::kernels
