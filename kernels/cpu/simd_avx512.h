#pragma once
// Sixteen lanes in one AVX-512 register (F, BW, VL, DQ, VNNI). Meaning of each function: Plain in
// simd_plain.h. Only the translation unit compiled for AVX-512 may include this; nothing here may
// get external linkage, or the linker could hand AVX-512 code to a processor without it.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/unroll.h"

namespace ponder::kernels {
namespace {

#define PONDER_LANES __attribute__((always_inline)) static inline

struct Avx512 {
  struct F {
    __m512 v;
  };
  struct I {
    __m512i v;
  };
  static constexpr int kTile = 8;
  static constexpr int kQueries = 6;
  static constexpr int kGroups = 4;
  static constexpr int kStrips = 2;
  static constexpr bool kDotsTakeTurns = true;

  PONDER_LANES __mmask16 first(std::int64_t n) {
    return static_cast<__mmask16>((1u << n) - 1u);  // n in 0..16
  }

  PONDER_LANES F zero() { return {_mm512_setzero_ps()}; }
  PONDER_LANES F set1(float x) { return {_mm512_set1_ps(x)}; }
  PONDER_LANES F load(const float* p) { return {_mm512_loadu_ps(p)}; }
  PONDER_LANES F load_n(const float* p, std::int64_t n) {
    return {_mm512_maskz_loadu_ps(first(n), p)};
  }
  PONDER_LANES void store(float* p, F a) { _mm512_storeu_ps(p, a.v); }
  PONDER_LANES void store_n(float* p, F a, std::int64_t n) {
    _mm512_mask_storeu_ps(p, first(n), a.v);
  }
  PONDER_LANES F load_f16(const std::byte* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  PONDER_LANES F load_bf16(const std::byte* p) {
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
  }
  PONDER_LANES F load_f32(const std::byte* p) { return {_mm512_loadu_ps(p)}; }
  PONDER_LANES void store_f16(std::byte* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  PONDER_LANES F add(F a, F b) { return {_mm512_add_ps(a.v, b.v)}; }
  PONDER_LANES F sub(F a, F b) { return {_mm512_sub_ps(a.v, b.v)}; }
  PONDER_LANES F mul(F a, F b) { return {_mm512_mul_ps(a.v, b.v)}; }
  PONDER_LANES F div(F a, F b) { return {_mm512_div_ps(a.v, b.v)}; }
  PONDER_LANES F fma(F a, F b, F c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  PONDER_LANES F min(F a, F b) { return {_mm512_min_ps(a.v, b.v)}; }
  PONDER_LANES F max(F a, F b) { return {_mm512_max_ps(a.v, b.v)}; }
  PONDER_LANES F select_lt(F a, F b, F x, F y) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
  }
  PONDER_LANES float reduce_add(F a) {
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
  }
  PONDER_LANES float reduce_max(F a) {
    const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
  }

  PONDER_LANES I bits(F a) { return {_mm512_castps_si512(a.v)}; }
  PONDER_LANES F floats(I a) { return {_mm512_castsi512_ps(a.v)}; }
  PONDER_LANES F to_float(I a) { return {_mm512_cvtepi32_ps(a.v)}; }
  PONDER_LANES I to_int(F a) { return {_mm512_cvtps_epi32(a.v)}; }
  PONDER_LANES I set1_i(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
  PONDER_LANES I load_i(const std::byte* p) { return {_mm512_loadu_si512(p)}; }
  PONDER_LANES I load_u8(const std::byte* p) {
    return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  PONDER_LANES I load_i8(const std::byte* p) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
  }
  PONDER_LANES void store_i8(std::int8_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a.v));
  }
  PONDER_LANES I add_i(I a, I b) { return {_mm512_add_epi32(a.v, b.v)}; }
  PONDER_LANES I sub_i(I a, I b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  PONDER_LANES I and_i(I a, I b) { return {_mm512_and_si512(a.v, b.v)}; }
  PONDER_LANES I or_i(I a, I b) { return {_mm512_or_si512(a.v, b.v)}; }
  PONDER_LANES I max_i(I a, I b) { return {_mm512_max_epi32(a.v, b.v)}; }
  template <int K>
  PONDER_LANES I shl(I a) {
    return {_mm512_slli_epi32(a.v, K)};
  }
  template <int K>
  PONDER_LANES I shr(I a) {
    return {_mm512_srli_epi32(a.v, K)};
  }
  template <int K>
  PONDER_LANES I sar(I a) {
    return {_mm512_srai_epi32(a.v, K)};
  }
  PONDER_LANES std::int32_t reduce_max_i(I a) { return _mm512_reduce_max_epi32(a.v); }
  PONDER_LANES std::int32_t reduce_add_i(I a) { return _mm512_reduce_add_epi32(a.v); }

  template <int K>
  PONDER_LANES F swap(F a) {
    if constexpr (K == 1) return {_mm512_permute_ps(a.v, 0xb1)};
    if constexpr (K == 2) return {_mm512_permute_ps(a.v, 0x4e)};
    if constexpr (K == 4) return {_mm512_shuffle_f32x4(a.v, a.v, 0xb1)};
    if constexpr (K == 8) return {_mm512_shuffle_f32x4(a.v, a.v, 0x4e)};
  }
  PONDER_LANES I repeat16(const void* p) {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(static_cast<const __m128i*>(p)))};
  }
  PONDER_LANES I lookup(I table, I index) { return {_mm512_shuffle_epi8(table.v, index.v)}; }
  PONDER_LANES I dot4_weights(I sum, I codes, const std::uint8_t* w) {
    int four;
    std::memcpy(&four, w, 4);
    return {_mm512_dpbusd_epi32(sum.v, _mm512_set1_epi32(four), codes.v)};
  }

  PONDER_LANES __m512i dot4(__m512i sum, __m512i codes, const std::int8_t* a) {
    int four;
    std::memcpy(&four, a, 4);
    return _mm512_dpbusd_epi32(sum, codes, _mm512_set1_epi32(four));
  }
  PONDER_LANES I dot_q8(const I (&w)[8], const std::int8_t* a, I start) {
    __m512i sum = start.v;
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      sum = dot4(sum, w[j].v, a + 4 * j);
    return {sum};
  }
  PONDER_LANES I dot_q8(const I (&w)[8], const std::int8_t* a, std::int32_t start) {
    return dot_q8(w, a, set1_i(start));
  }
  PONDER_LANES I dot_u5(const I (&w)[8], const std::int8_t* a, I start) {
    __m512i sum = start.v;
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      sum = dot4(sum, w[j].v, a + 4 * j);
    return {sum};
  }
  /// dot_q8 and dot_u5 of T tokens, 32 bytes apart, a dword of each at a time.
  template <std::size_t T>
  PONDER_LANES void dots(const I (&w)[8], const std::int8_t* a, I (&sum)[T]) {
    PONDER_UNROLL
    for (std::size_t j = 0; j < 8; ++j)
      PONDER_UNROLL
    for (std::size_t t = 0; t < T; ++t)
      sum[t].v = dot4(sum[t].v, w[j].v, a + 32 * t + 4 * j);
  }
  PONDER_LANES I dot_u6(const I* w, const std::int8_t* a, I start) {
    __m512i sum = start.v;
    PONDER_UNROLL
    for (int j = 0; j < 4; ++j)
      sum = dot4(sum, w[j].v, a + 4 * j);
    return {sum};
  }
};

#undef PONDER_LANES

}  // namespace
}  // namespace ponder::kernels
