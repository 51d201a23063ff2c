#pragma once
// Sixteen lanes in standard C++: what every other instruction set must equal bit for bit. F is 16
// floats, I is 16 integers of 32 bits or 64 bytes, by use. Every lane is rounded as IEEE 754 says,
// fma once; min and max return their second argument where the comparison is false; sums over
// lanes go by halves (lane i + lane i + 8, then 4, 2, 1). dot_*: 16 rows times the same columns:
// code byte k of dword r belongs to row r, `a` are the columns of one token, all of them exact;
// they begin from `start`, which is minus a zero point times the sum of a (128 for dot_q8).
// One translation unit includes this.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/quant/float.h"

namespace ponder::kernels {
namespace {

struct Plain {
  struct F {
    float v[16];
  };
  struct I {
    std::uint32_t v[16];
  };
  static constexpr int kTile = 4;     // tokens a matrix product takes at a time
  static constexpr int kQueries = 2;  // query vectors attention takes at a time
  static constexpr int kGroups = 2;   // of 16 positions, the same
  static constexpr int kStrips = 1;   // of 16 value columns the delta rule takes at a time
  static constexpr bool kDotsTakeTurns = false;  // dots() does the tokens' dots together

  template <class G>
  static F map(G g) {
    F r;
    for (int i = 0; i < 16; ++i)
      r.v[i] = g(i);
    return r;
  }
  template <class G>
  static I map_i(G g) {
    I r;
    for (int i = 0; i < 16; ++i)
      r.v[i] = static_cast<std::uint32_t>(g(i));
    return r;
  }

  static F zero() { return F{}; }
  static F set1(float x) {
    return map([&](int) { return x; });
  }
  static F load(const float* p) {
    return map([&](int i) { return p[i]; });
  }
  static F load_n(const float* p, std::int64_t n) {
    return map([&](int i) { return i < n ? p[i] : 0.0f; });
  }
  static void store(float* p, F a) { std::memcpy(p, a.v, sizeof a.v); }
  static void store_n(float* p, F a, std::int64_t n) {
    std::memcpy(p, a.v, static_cast<std::size_t>(n) * sizeof(float));
  }
  static F load_f16(const std::byte* p) {
    return map([&](int i) { return ponder::kernels::load_f16(p + 2 * i); });
  }
  static F load_bf16(const std::byte* p) {
    return map([&](int i) { return f32_of_bf16(load_u16(p + 2 * i)); });
  }
  static F load_f32(const std::byte* p) {
    F r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static void store_f16(std::byte* p, F a) {
    for (int i = 0; i < 16; ++i) {
      const std::uint16_t h = f16_of_f32(a.v[i]);
      std::memcpy(p + 2 * i, &h, 2);
    }
  }
  static F add(F a, F b) {
    return map([&](int i) { return a.v[i] + b.v[i]; });
  }
  static F sub(F a, F b) {
    return map([&](int i) { return a.v[i] - b.v[i]; });
  }
  static F mul(F a, F b) {
    return map([&](int i) { return a.v[i] * b.v[i]; });
  }
  static F div(F a, F b) {
    return map([&](int i) { return a.v[i] / b.v[i]; });
  }
  static F fma(F a, F b, F c) {
    return map([&](int i) { return std::fmaf(a.v[i], b.v[i], c.v[i]); });
  }
  static F min(F a, F b) {
    return map([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F max(F a, F b) {
    return map([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
  }
  static F select_lt(F a, F b, F x, F y) {
    return map([&](int i) { return a.v[i] < b.v[i] ? x.v[i] : y.v[i]; });
  }
  static float reduce_add(F a) {
    for (int w = 8; w > 0; w /= 2)
      for (int i = 0; i < w; ++i)
        a.v[i] = a.v[i] + a.v[i + w];
    return a.v[0];
  }
  static float reduce_max(F a) {
    for (int w = 8; w > 0; w /= 2)
      for (int i = 0; i < w; ++i)
        a.v[i] = a.v[i] > a.v[i + w] ? a.v[i] : a.v[i + w];
    return a.v[0];
  }

  static I bits(F a) {
    I r;
    std::memcpy(r.v, a.v, sizeof r.v);
    return r;
  }
  static F floats(I a) {
    F r;
    std::memcpy(r.v, a.v, sizeof r.v);
    return r;
  }
  static F to_float(I a) {
    return map([&](int i) { return static_cast<float>(static_cast<std::int32_t>(a.v[i])); });
  }
  /// Adding 1.5 * 2^23 leaves the value, rounded to nearest even, in the low bits.
  static I to_int(F a) {
    return map_i([&](int i) { return bits_of_float(a.v[i] + 12582912.0f) - 0x4b400000u; });
  }
  static I set1_i(std::int32_t x) {
    return map_i([&](int) { return x; });
  }
  static I load_i(const std::byte* p) {
    I r;
    std::memcpy(r.v, p, sizeof r.v);
    return r;
  }
  static I load_u8(const std::byte* p) {
    return map_i([&](int i) { return byte_at(p, static_cast<std::size_t>(i)); });
  }
  static I load_i8(const std::byte* p) {
    return map_i([&](int i) {
      std::int8_t x;
      std::memcpy(&x, p + i, 1);
      return static_cast<std::int32_t>(x);
    });
  }
  static void store_i8(std::int8_t* p, I a) {
    for (int i = 0; i < 16; ++i)
      p[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(a.v[i]));
  }
  static I add_i(I a, I b) {
    return map_i([&](int i) { return a.v[i] + b.v[i]; });
  }
  static I sub_i(I a, I b) {
    return map_i([&](int i) { return a.v[i] - b.v[i]; });
  }
  static I and_i(I a, I b) {
    return map_i([&](int i) { return a.v[i] & b.v[i]; });
  }
  static I or_i(I a, I b) {
    return map_i([&](int i) { return a.v[i] | b.v[i]; });
  }
  static I max_i(I a, I b) {
    return map_i([&](int i) {
      return static_cast<std::int32_t>(a.v[i]) > static_cast<std::int32_t>(b.v[i]) ? a.v[i]
                                                                                   : b.v[i];
    });
  }
  template <int K>
  static I shl(I a) {
    return map_i([&](int i) { return a.v[i] << K; });
  }
  template <int K>
  static I shr(I a) {
    return map_i([&](int i) { return a.v[i] >> K; });
  }
  template <int K>
  static I sar(I a) {
    return map_i([&](int i) { return static_cast<std::int32_t>(a.v[i]) >> K; });
  }
  static std::int32_t reduce_max_i(I a) {
    std::int32_t m = static_cast<std::int32_t>(a.v[0]);
    for (int i = 1; i < 16; ++i)
      m = static_cast<std::int32_t>(a.v[i]) > m ? static_cast<std::int32_t>(a.v[i]) : m;
    return m;
  }
  static std::int32_t reduce_add_i(I a) {
    std::uint32_t sum = 0;
    for (int i = 0; i < 16; ++i)
      sum += a.v[i];
    return static_cast<std::int32_t>(sum);
  }

  /// Lane i gets lane i ^ K (K 1, 2, 4 or 8).
  template <int K>
  static F swap(F a) {
    return map([&](int i) { return a.v[i ^ K]; });
  }
  /// 16 bytes, four times.
  static I repeat16(const void* p) {
    I r;
    for (int i = 0; i < 16; i += 4)
      std::memcpy(r.v + i, p, 16);
    return r;
  }
  /// Bytes of a repeat16 table at the bytes of `index`, 0..15.
  static I lookup(I table, I index) {
    return map_i([&](int i) {
      std::uint32_t r = 0;
      for (int k = 0; k < 32; k += 8) {
        const std::uint32_t at = (index.v[i] >> k) & 15u;
        r |= ((table.v[at / 4] >> (at % 4 * 8)) & 255u) << k;
      }
      return r;
    });
  }
  /// Four weights of 0..127, the same for all lanes, times the lane's four signed codes.
  static I dot4_weights(I sum, I codes, const std::uint8_t* w) {
    return map_i([&](int i) {
      std::uint32_t s = sum.v[i];
      for (int k = 0; k < 4; ++k)
        s += static_cast<std::uint32_t>(
            w[k] * static_cast<std::int32_t>(static_cast<std::int8_t>(codes.v[i] >> (8 * k))));
      return s;
    });
  }

  static I dot4(I sum, I codes, const std::int8_t* a) {
    return map_i([&](int i) {
      std::uint32_t s = sum.v[i];
      for (int k = 0; k < 4; ++k)
        s += ((codes.v[i] >> (8 * k)) & 255u) *
             static_cast<std::uint32_t>(static_cast<std::int32_t>(a[k]));
      return s;
    });
  }
  static I dot_q8(const I (&w)[8], const std::int8_t* a, I start) {
    I sum = start;
    for (int j = 0; j < 8; ++j)
      sum = dot4(sum, w[j], a + 4 * j);
    return sum;
  }
  static I dot_q8(const I (&w)[8], const std::int8_t* a, std::int32_t start) {
    return dot_q8(w, a, set1_i(start));
  }
  static I dot_u5(const I (&w)[8], const std::int8_t* a, I start) {
    I sum = start;
    for (int j = 0; j < 8; ++j)
      sum = dot4(sum, w[j], a + 4 * j);
    return sum;
  }
  static I dot_u6(const I* w, const std::int8_t* a, I start) {
    I sum = start;
    for (int j = 0; j < 4; ++j)
      sum = dot4(sum, w[j], a + 4 * j);
    return sum;
  }
};

}  // namespace
}  // namespace ponder::kernels
