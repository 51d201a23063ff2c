#pragma once
// What each quantised format does with the columns of one panel and the T tokens of `tile`:
// sum[t] += ... in the order of the columns. A format is three things, each a few lines here: how
// 32 columns of 16 rows become eight registers of unsigned codes (`w`, four columns a register, so
// that w[0..3] are the first 16 columns), its scales, and which of four families it belongs to:
//
//   one scale     sum += (dot * step) * d_x                      dot = sum (code - Zero) q
//   affine        sum += (dot * step) * d_x + low * (d_x sum q)  dot = sum code q
//   two scales    sum += (dot_0 * step_0 + dot_1 * step_1) * d_x       16 columns each
//   two affine    the same, plus (low_0 * sum_0 q + low_1 * sum_1 q) * d_x
//
// with exact integer dots. Zero points are paid from the tokens' sums. No fused operation but where
// the source says fma; the same operations in the same order for every T.
#include "kernels/core/panel_layout.h"
#include "kernels/cpu/token_blocks.h"
#include "kernels/cpu/unroll.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/mxfp4.h"

namespace ponder::kernels {

/// 16 levels as unsigned bytes.
struct LevelTable {
  std::uint8_t byte[16];
};
constexpr LevelTable raised(const std::int8_t (&levels)[16], int by) {
  LevelTable table{};
  for (int i = 0; i < 16; ++i)
    table.byte[i] = static_cast<std::uint8_t>(levels[i] + by);
  return table;
}

template <class S>
struct Products {
  using F = typename S::F;
  using I = typename S::I;

  // ---- families

  /// -Zero * (sum of a token's 32 codes), from -128 times it.
  template <int Zero>
  PONDER_INLINE static I start(std::int32_t minus_128_sum) {
    static_assert(Zero == 128 || Zero == 16 || Zero == 8);
    const I sum = S::set1_i(minus_128_sum);
    if constexpr (Zero == 16) return S::template sar<3>(sum);
    if constexpr (Zero == 8) return S::template sar<4>(sum);
    return sum;
  }
  /// The same for 16 codes, from -32 times their sum.
  template <int Zero>
  PONDER_INLINE static I half_start(std::int32_t minus_32_sum) {
    static_assert(Zero == 32 || Zero == 4 || Zero == 0);
    if constexpr (Zero == 0) return S::set1_i(0);
    const I sum = S::set1_i(minus_32_sum);
    if constexpr (Zero == 4) return S::template sar<3>(sum);
    return sum;
  }

  /// On AVX-512 the tokens' dots take turns, a dword of each at a time: one dot after the other
  /// fills the schedulers with waiting products (6 % more time at 8 tokens, 33 % at 3 of Q8_0). The
  /// families with two sums a block gained nothing.
  ///
  /// Codes up to 255 for Zero 128, else up to 31.
  template <int Zero, class Tile>
  PONDER_INLINE static void one_scale(const I (&w)[8], F step, Tile tile, F (&sum)[Tile::kTokens]) {
    I dot[Tile::kTokens];
    if constexpr (S::kDotsTakeTurns) {
      PONDER_UNROLL
      for (int t = 0; t < Tile::kTokens; ++t)
        dot[t] = start<Zero>(tile.minus_128_sum(t));
      S::dots(w, tile.q(0), dot);
    }
    PONDER_UNROLL
    for (int t = 0; t < Tile::kTokens; ++t) {
      if constexpr (!S::kDotsTakeTurns) {
        const I from = start<Zero>(tile.minus_128_sum(t));
        dot[t] = Zero == 128 ? S::dot_q8(w, tile.q(t), from) : S::dot_u5(w, tile.q(t), from);
      }
      sum[t] = S::fma(S::mul(S::to_float(dot[t]), step), S::set1(tile.d(t)), sum[t]);
    }
  }

  /// Codes up to 31.
  template <class Tile>
  PONDER_INLINE static void affine(const I (&w)[8], F step, F low, Tile tile,
                                   F (&sum)[Tile::kTokens]) {
    I dot[Tile::kTokens];
    if constexpr (S::kDotsTakeTurns) {
      PONDER_UNROLL
      for (int t = 0; t < Tile::kTokens; ++t)
        dot[t] = S::set1_i(0);
      S::dots(w, tile.q(0), dot);
    }
    PONDER_UNROLL
    for (int t = 0; t < Tile::kTokens; ++t) {
      if constexpr (!S::kDotsTakeTurns) dot[t] = S::dot_u5(w, tile.q(t), S::set1_i(0));
      sum[t] = S::fma(S::mul(S::to_float(dot[t]), step), S::set1(tile.d(t)), sum[t]);
      sum[t] = S::fma(low, S::set1(tile.d_sum(t)), sum[t]);
    }
  }

  /// Codes up to 63.
  template <int Zero, class Tile>
  PONDER_INLINE static void two_scales(const I (&w)[8], F step_0, F step_1, Tile tile,
                                       F (&sum)[Tile::kTokens]) {
    PONDER_UNROLL
    for (int t = 0; t < Tile::kTokens; ++t) {
      const F a = S::to_float(S::dot_u6(w, tile.q(t), half_start<Zero>(tile.minus_32_sum(t, 0))));
      const F b =
          S::to_float(S::dot_u6(w + 4, tile.q(t) + 16, half_start<Zero>(tile.minus_32_sum(t, 1))));
      sum[t] = S::fma(S::fma(b, step_1, S::mul(a, step_0)), S::set1(tile.d(t)), sum[t]);
    }
  }

  /// Codes up to 63; low_* is a minimum divided by -32, for that many times the sums are at hand.
  template <class Tile>
  PONDER_INLINE static void two_affine(const I (&w)[8], F step_0, F step_1, F low_0, F low_1,
                                       Tile tile, F (&sum)[Tile::kTokens]) {
    PONDER_UNROLL
    for (int t = 0; t < Tile::kTokens; ++t) {
      const F a = S::to_float(S::dot_u6(w, tile.q(t), S::set1_i(0)));
      const F b = S::to_float(S::dot_u6(w + 4, tile.q(t) + 16, S::set1_i(0)));
      F both = S::fma(b, step_1, S::mul(a, step_0));
      both = S::fma(low_0, S::set1(static_cast<float>(tile.minus_32_sum(t, 0))), both);
      both = S::fma(low_1, S::set1(static_cast<float>(tile.minus_32_sum(t, 1))), both);
      sum[t] = S::fma(both, S::set1(tile.d(t)), sum[t]);
    }
  }

  // ---- codes

  PONDER_INLINE static I low_nibbles(I x) { return S::and_i(x, S::set1_i(0x0f0f0f0f)); }
  PONDER_INLINE static I high_nibbles(I x) {
    return S::and_i(S::template shr<4>(x), S::set1_i(0x0f0f0f0f));
  }
  /// 16 bytes a row in the nibble order of Q4_0.
  PONDER_INLINE static void nibbles(const std::byte* p, I (&w)[8]) {
    PONDER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const I x = S::load_i(p + j * 64);
      w[j] = low_nibbles(x);
      w[j + 4] = high_nibbles(x);
    }
  }
  /// 16 bytes a row in NVFP4's order: 8 for each 16 columns.
  PONDER_INLINE static void half_nibbles(const std::byte* p, I (&w)[8]) {
    PONDER_UNROLL
    for (int j = 0; j < 4; ++j) {
      const I x = S::load_i(p + j * 64);
      w[j / 2 * 4 + j % 2] = low_nibbles(x);
      w[j / 2 * 4 + j % 2 + 2] = high_nibbles(x);
    }
  }
  /// Bit From of each byte of x, moved to bit To; the other bits 0.
  template <int From, int To>
  PONDER_INLINE static I moved_bit(I x) {
    const I mask = S::set1_i(0x01010101 << To);
    if constexpr (From < To) return S::and_i(S::template shl<To - From>(x), mask);
    return S::and_i(S::template shr<(From < To ? 0 : From - To)>(x), mask);
  }
  template <int J>
  PONDER_INLINE static void add_fifth(I bits, I (&w)[8]) {
    w[J] = S::or_i(w[J], moved_bit<J, 4>(bits));
    if constexpr (J < 7) add_fifth<J + 1>(bits, w);
  }
  PONDER_INLINE static void five_bits(const std::byte* p, I (&w)[8]) {
    nibbles(p, w);
    add_fifth<0>(S::load_i(p + layout::kNibbles), w);
  }
  PONDER_INLINE static void look_up(const LevelTable& table, I (&w)[8]) {
    const I levels = S::repeat16(table.byte);
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] = S::lookup(levels, w[j]);
  }
  /// Two bits of eight registers in the order of Q2_K and Q3_K.
  template <int Quarter, int Step>
  PONDER_INLINE static void two_bits(const std::byte* half, I (&w)[8]) {
    PONDER_UNROLL
    for (int j = 0; j < 8; ++j)
      w[j] =
          S::and_i(S::template shr<2 * Quarter>(S::load_i(half + j * Step)), S::set1_i(0x03030303));
  }
  PONDER_INLINE static F load_u8(const std::byte* p) { return S::to_float(S::load_u8(p)); }
  PONDER_INLINE static F load_i8(const std::byte* p) { return S::to_float(S::load_i8(p)); }

  // ---- formats of 32 or 64 columns

  struct Q8_0 {
    static constexpr int kBytes = layout::kQ8Bytes;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::load_i(body + j * 64);
      one_scale<128>(w, S::load_f16(body + layout::kQ8D), tile, sum);
    }
  };
  struct Q4_0 {
    static constexpr int kBytes = layout::kNibbles + 32;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      nibbles(body, w);
      one_scale<8>(w, S::load_f16(body + layout::kNibbles), tile, sum);
    }
  };
  struct Q4_1 {
    static constexpr int kBytes = layout::kNibbles + 64;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      nibbles(body, w);
      affine(w, S::load_f16(body + layout::kNibbles), S::load_f16(body + layout::kNibbles + 32),
             tile, sum);
    }
  };
  struct Q5_0 {
    static constexpr int kBytes = layout::kFiveBits + 32;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      five_bits(body, w);
      one_scale<16>(w, S::load_f16(body + layout::kFiveBits), tile, sum);
    }
  };
  struct Q5_1 {
    static constexpr int kBytes = layout::kFiveBits + 64;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      five_bits(body, w);
      affine(w, S::load_f16(body + layout::kFiveBits), S::load_f16(body + layout::kFiveBits + 32),
             tile, sum);
    }
  };
  struct Iq4Nl {
    static constexpr int kBytes = layout::kNibbles + 32;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      constexpr LevelTable table = raised(iq4_nl::kLevels, 128);
      I w[8];
      nibbles(body, w);
      look_up(table, w);
      one_scale<128>(w, S::load_f16(body + layout::kNibbles), tile, sum);
    }
  };
  struct Mxfp4 {
    static constexpr int kBytes = layout::kNibbles + 16;
    /// mxfp4::scale of 16 rows: (e - 1) << 23, or where that is not positive (e + 1) << 21.
    PONDER_INLINE static F scales(const std::byte* p) {
      const I e = S::load_u8(p), one = S::set1_i(1);
      return S::floats(
          S::max_i(S::template shl<23>(S::sub_i(e, one)), S::template shl<21>(S::add_i(e, one))));
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      constexpr LevelTable table = raised(mxfp4::kLevels, 16);
      I w[8];
      nibbles(body, w);
      look_up(table, w);
      one_scale<16>(w, scales(body + layout::kNibbles), tile, sum);
    }
  };
  struct Nvfp4 {
    static constexpr int kBytes = layout::kNvBytes;
    /// nvfp4::scale of 16 rows, staged: as the exponent and fraction of an f32 they are 2^119 too
    /// small.
    PONDER_INLINE static F scales(const std::byte* p) {
      return S::mul(S::floats(S::template shl<20>(S::load_u8(p))), S::set1(0x1p119f));
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      constexpr LevelTable table = raised(mxfp4::kLevels, 32);
      for (int half = 0; half < 2; ++half) {
        I w[8];
        half_nibbles(body + layout::kNvCodes + half * layout::kNibbles, w);
        look_up(table, w);
        two_scales<32>(w, scales(body + half * 32), scales(body + half * 32 + 16), tile.at(half),
                       sum);
      }
    }
  };

  // ---- formats of 256 columns

  struct Q2_K {
    static constexpr int kBytes = layout::kQ2Bytes;
    template <int Quarter, class Tile>
    PONDER_INLINE static void quarter(const std::byte* codes, const std::byte* scales, F d, F low,
                                      Tile tile, F (&sum)[Tile::kTokens]) {
      I w[8];
      two_bits<Quarter, 64>(codes, w);
      const I first = S::load_u8(scales + Quarter * 32);
      const I second = S::load_u8(scales + Quarter * 32 + 16);
      const auto times = [](F x, I nibble) { return S::mul(x, S::to_float(nibble)); };
      two_affine(w, times(d, low_nibbles(first)), times(d, low_nibbles(second)),
                 times(low, S::template shr<4>(first)), times(low, S::template shr<4>(second)),
                 tile.at(Quarter), sum);
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      const F d = S::load_f16(body);
      const F low = S::mul(S::load_f16(body + 32), S::set1(1.0f / 32));
      for (int half = 0; half < 2; ++half, tile = tile.at(4)) {
        const std::byte* codes = body + layout::kQ2Codes + half * 512;
        const std::byte* scales = body + layout::kQ2Scales + half * 128;
        quarter<0>(codes, scales, d, low, tile, sum);
        quarter<1>(codes, scales, d, low, tile, sum);
        quarter<2>(codes, scales, d, low, tile, sum);
        quarter<3>(codes, scales, d, low, tile, sum);
      }
    }
  };

  struct Q3_K {
    static constexpr int kBytes = layout::kQ3Bytes;
    template <int Group, class Tile>
    PONDER_INLINE static void group(const std::byte* body, F d, Tile tile,
                                    F (&sum)[Tile::kTokens]) {
      I w[8];
      const std::byte* codes = body + (Group < 4 ? layout::kQ3Codes : layout::kQ3Rest);
      two_bits < Group % 4, Group<4 ? 128 : 64>(codes, w);
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::or_i(w[j], moved_bit<Group, 2>(S::load_i(body + layout::kQ3High + j * 128)));
      const I low = S::load_u8(body + layout::kQ3Scales + Group * 16);
      const I high = S::load_u8(body + layout::kQ3ScalesHigh + Group / 2 * 16);
      const I upper = S::set1_i(0x30), zero = S::set1_i(32);
      I high_0 = high, high_1 = S::template shr<2>(high);  // even groups: in the low nibble
      if constexpr (Group % 2 == 0) {
        high_0 = S::template shl<4>(high);
        high_1 = S::template shl<2>(high);
      }
      const I first = S::or_i(low_nibbles(low), S::and_i(high_0, upper));
      const I second = S::or_i(S::template shr<4>(low), S::and_i(high_1, upper));
      two_scales<4>(w, S::mul(d, S::to_float(S::sub_i(first, zero))),
                    S::mul(d, S::to_float(S::sub_i(second, zero))), tile.at(Group), sum);
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      const F d = S::load_f16(body);
      group<0>(body, d, tile, sum);
      group<1>(body, d, tile, sum);
      group<2>(body, d, tile, sum);
      group<3>(body, d, tile, sum);
      group<4>(body, d, tile, sum);
      group<5>(body, d, tile, sum);
      group<6>(body, d, tile, sum);
      group<7>(body, d, tile, sum);
    }
  };

  /// Sub-block j of Q4_K or Q5_K.
  template <class Tile>
  PONDER_INLINE static void k_sub_block(const I (&w)[8], const std::byte* body, int j, F d,
                                        F minus_dmin, Tile tile, F (&sum)[Tile::kTokens]) {
    const F step = S::mul(d, load_u8(body + layout::kKScales + j * 16));
    const F low = S::mul(minus_dmin, load_u8(body + layout::kKMins + j * 16));
    affine(w, step, low, tile.at(j), sum);
  }

  struct Q4_K {
    static constexpr int kBytes = layout::kQ4Bytes;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      const F d = S::load_f16(body);
      const F minus_dmin = S::sub(S::zero(), S::load_f16(body + 32));
      for (int pair = 0; pair < 4; ++pair) {
        const std::byte* codes = body + layout::kKCodes + pair * 512;
        I w[8];
        PONDER_UNROLL
        for (int j = 0; j < 8; ++j)
          w[j] = low_nibbles(S::load_i(codes + j * 64));
        k_sub_block(w, body, 2 * pair, d, minus_dmin, tile, sum);
        PONDER_UNROLL
        for (int j = 0; j < 8; ++j)
          w[j] = high_nibbles(S::load_i(codes + j * 64));
        k_sub_block(w, body, 2 * pair + 1, d, minus_dmin, tile, sum);
      }
    }
  };

  struct Q5_K {
    static constexpr int kBytes = layout::kQ5Bytes;
    template <int Pair, class Tile>
    PONDER_INLINE static void pair(const std::byte* body, F d, F minus_dmin, Tile tile,
                                   F (&sum)[Tile::kTokens]) {
      constexpr int kStep = Pair == 0 ? 128 : 64;
      const std::byte* codes =
          body + (Pair == 0 ? layout::kKCodes : layout::kQ5Rest + (Pair - 1) * 512);
      const std::byte* high = body + layout::kQ5High;
      I w[8];
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::or_i(low_nibbles(S::load_i(codes + j * kStep)),
                       moved_bit<2 * Pair, 4>(S::load_i(high + j * 128)));
      k_sub_block(w, body, 2 * Pair, d, minus_dmin, tile, sum);
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j)
        w[j] = S::or_i(high_nibbles(S::load_i(codes + j * kStep)),
                       moved_bit<2 * Pair + 1, 4>(S::load_i(high + j * 128)));
      k_sub_block(w, body, 2 * Pair + 1, d, minus_dmin, tile, sum);
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      const F d = S::load_f16(body);
      const F minus_dmin = S::sub(S::zero(), S::load_f16(body + 32));
      pair<0>(body, d, minus_dmin, tile, sum);
      pair<1>(body, d, minus_dmin, tile, sum);
      pair<2>(body, d, minus_dmin, tile, sum);
      pair<3>(body, d, minus_dmin, tile, sum);
    }
  };

  struct Q6_K {
    static constexpr int kBytes = layout::kQ6Bytes;
    template <int Quarter, class Tile>
    PONDER_INLINE static void quarter(const std::byte* half, F d, Tile tile,
                                      F (&sum)[Tile::kTokens]) {
      constexpr int kStep = Quarter % 2 == 0 ? 128 : 64;
      const std::byte* low = half + (Quarter % 2 == 0 ? layout::kQ6Codes : layout::kQ6Odd);
      const std::byte* high = half + layout::kQ6High;
      const I upper = S::set1_i(0x30303030);
      I w[8];
      PONDER_UNROLL
      for (int j = 0; j < 8; ++j) {
        const I codes = S::load_i(low + j * kStep);
        const I bits = S::load_i(high + j * 128);
        I raised_bits = bits;
        if constexpr (Quarter == 0) raised_bits = S::template shl<4>(bits);
        if constexpr (Quarter == 1) raised_bits = S::template shl<2>(bits);
        if constexpr (Quarter == 3) raised_bits = S::template shr<2>(bits);
        w[j] = S::or_i(Quarter < 2 ? low_nibbles(codes) : high_nibbles(codes),
                       S::and_i(raised_bits, upper));
      }
      two_scales<32>(w, S::mul(d, load_i8(half + Quarter * 32)),
                     S::mul(d, load_i8(half + Quarter * 32 + 16)), tile.at(Quarter), sum);
    }
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      const F d = S::load_f16(body);
      for (int h = 0; h < 2; ++h, tile = tile.at(4)) {
        const std::byte* half = body + layout::kQ6Half + h * layout::kQ6HalfBytes;
        quarter<0>(half, d, tile, sum);
        quarter<1>(half, d, tile, sum);
        quarter<2>(half, d, tile, sum);
        quarter<3>(half, d, tile, sum);
      }
    }
  };

  struct Iq4Xs {
    static constexpr int kBytes = layout::kIq4Bytes;
    template <class Tile>
    PONDER_INLINE static void columns(const std::byte* body, Tile tile, F (&sum)[Tile::kTokens]) {
      constexpr LevelTable table = raised(iq4_nl::kLevels, 128);
      const F d = S::load_f16(body);
      for (int j = 0; j < 8; ++j) {
        I w[8];
        nibbles(body + layout::kIq4Codes + j * layout::kNibbles, w);
        look_up(table, w);
        one_scale<128>(w, S::mul(d, load_i8(body + layout::kIq4Scales + j * 16)), tile.at(j), sum);
      }
    }
  };

  /// All blocks (of `Columns` columns) of a panel.
  template <class Format, int Columns, class Tile>
  static void panel(const std::byte* from, std::int64_t cols, Tile tile, F (&sum)[Tile::kTokens]) {
    for (std::int64_t c = 0; c < cols;
         c += Columns, from += Format::kBytes, tile = tile.at(Columns / 32))
      Format::columns(from, tile, sum);
  }
};

}  // namespace ponder::kernels
