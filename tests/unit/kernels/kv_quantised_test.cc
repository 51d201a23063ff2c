// q8_0 and r4 keys and values: what a block costs, what writing it loses, and what becomes of
// numbers at the ends of the range.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kv_reference.h"

namespace ponder::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(KvShape, BlocksCostWhatTheFormsPromise) {
  // q8_0: 34 / 32 byte a value. r4: 4.125 bits a value.
  struct Case {
    const char* name;
    std::size_t layers;
    std::int64_t heads;
    std::size_t f32, f16, q8_0, r4;  // bytes a token
  };
  constexpr Case kCases[] = {
      {"Pebble", 2, 1, 4096, 2048, 1088, 528},
      {"0.8B", 6, 2, 24576, 12288, 6528, 3168},
      {"4B", 8, 4, 65536, 32768, 17408, 8448},
      {"27B", 16, 4, 131072, 65536, 34816, 16896},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const auto token = [&](KvElement element) {
      return c.layers * kv_block_bytes({element, c.heads, 256}) / kKvBlockPositions;
    };
    EXPECT_EQ(token(KvElement::f32), c.f32);
    EXPECT_EQ(token(KvElement::f16), c.f16);
    EXPECT_EQ(token(KvElement::q8_0), c.q8_0);
    EXPECT_EQ(token(KvElement::r4), c.r4);
  }
  for (std::int64_t dim = 16; dim <= 256; dim += 16) {
    const KvShape r4{KvElement::r4, 2, dim}, q8_0{KvElement::q8_0, 2, dim};
    EXPECT_EQ(kv_shape_supported(r4), dim % 64 == 0);
    EXPECT_EQ(kv_shape_supported(q8_0), dim % 32 == 0);
    const auto values = static_cast<std::size_t>(2 * 64 * 2 * dim);
    if (kv_shape_supported(r4)) {
      EXPECT_LE(kv_block_bytes(r4) * 8 * 100, values * 425);
    }
    if (kv_shape_supported(q8_0)) {
      EXPECT_EQ(kv_block_bytes(q8_0), values * 34 / 32);
    }
  }
}

TEST(KvShape, ARefusalSaysWhatToUseInstead) {
  EXPECT_EQ(kv_shape_refusal({KvElement::r4, 2, 96}),
            "r4 keys and values need heads of a multiple of 64 values; this model's have 96: use "
            "q8_0 or f16");
  EXPECT_EQ(kv_shape_refusal({KvElement::r4, 2, 80}),
            "r4 keys and values need heads of a multiple of 64 values; this model's have 80: use "
            "f16");
  EXPECT_EQ(kv_shape_refusal({KvElement::q8_0, 2, 48}),
            "q8_0 keys and values need heads of a multiple of 32 values; this model's have 48: use "
            "f16");
  EXPECT_NE(kv_shape_refusal({KvElement::r4, 2, 512}).find("at most 256"), std::string::npos);
  EXPECT_EQ(kv_shape_refusal({KvElement::r4, 2, 64}), "");
  EXPECT_DEATH(kv_block_bytes({KvElement::r4, 2, 96}), "");
}

class KvOn : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
  void write(Cache& cache, const std::vector<float>& k, const std::vector<float>& v) const {
    KvWrite op;
    op.shape = cache.shape;
    op.blocks = {cache.blocks.data(), cache.blocks.size()};
    op.n = static_cast<std::int64_t>(k.size()) / (cache.shape.kv_heads * cache.shape.head_dim);
    op.k = k.data();
    op.v = v.data();
    ops().kv_write({}, op);
  }
  std::vector<float> attend(const Cache& cache, const std::vector<float>& q, std::int64_t n) const {
    std::vector<float> y(q.size());
    Attention op;
    op.shape = cache.shape;
    op.blocks = cache.read();
    op.n = n;
    op.heads = static_cast<std::int64_t>(q.size()) / n / cache.shape.head_dim;
    op.q = q.data();
    op.y = y.data();
    ops().attention({}, op);
    return y;
  }
};
INSTANTIATE_TEST_SUITE_P(All, KvOn, ::testing::ValuesIn(runnable_cpu_ops()),
                         [](const auto& p) { return std::string(p.param->name); });

enum class Data { normal, outliers, student };

/// Normal; four of 128 channels 20 times as large; Student's t with 3 degrees of freedom.
std::vector<float> sample(Data data, std::size_t count, std::uint32_t seed) {
  std::vector<std::vector<float>> normal;
  for (std::uint32_t i = 0; i < 4; ++i)
    normal.push_back(random_floats(count, seed + 17 * i));
  std::vector<float> x = normal[0];
  for (std::size_t i = 0; i < count; ++i) {
    if (data == Data::outliers && i % 32 == 5) x[i] *= 20.0f;
    if (data == Data::student) {
      float squares = 0;
      for (std::size_t j = 1; j < 4; ++j)
        squares += normal[j][i] * normal[j][i];
      x[i] /= std::sqrt(squares / 3);
    }
  }
  return x;
}

TEST_P(KvOn, StoringLosesAsMuchAsTheFormsAreKnownToLose) {
  // Relative squared errors: q8_0 2.9e-5, 1.5e-4, 7.3e-5; r4 0.0092, 0.0081, 0.0087.
  struct Case {
    KvElement element;
    Data data;
    double low, high;
  };
  constexpr Case kCases[] = {
      {KvElement::q8_0, Data::normal, 2e-5, 4e-5},   {KvElement::q8_0, Data::outliers, 1e-4, 2e-4},
      {KvElement::q8_0, Data::student, 4e-5, 1e-4},  {KvElement::r4, Data::normal, 0.008, 0.0097},
      {KvElement::r4, Data::outliers, 0.007, 0.009}, {KvElement::r4, Data::student, 0.008, 0.0097}};
  for (const Case& c : kCases) {
    for (const std::int64_t dim : {256, 64}) {
      const KvShape shape{c.element, 1, dim};
      const std::int64_t n = 128;
      Cache cache(shape, n);
      const std::vector<float> k = sample(c.data, static_cast<std::size_t>(n * dim), 1),
                               v = sample(c.data, k.size(), 100);
      write(cache, k, v);
      for (const bool key : {true, false}) {
        double error = 0;
        for (std::int64_t j = 0; j < n; ++j) {
          const std::vector<double> x =
              decoded(shape, cache.blocks[static_cast<std::size_t>(j / 64)], 0, j % 64, key);
          double lost = 0, whole = 0;
          for (std::size_t d = 0; d < x.size(); ++d) {
            const auto want =
                static_cast<double>((key ? k : v)[static_cast<std::size_t>(j * dim) + d]);
            lost += (x[d] - want) * (x[d] - want);
            whole += want * want;
          }
          error += lost / whole / static_cast<double>(n);
        }
        EXPECT_GT(error, c.low) << static_cast<int>(c.data) << " of " << dim << ", key " << key;
        EXPECT_LT(error, c.high) << static_cast<int>(c.data) << " of " << dim << ", key " << key;
      }
    }
  }
}

TEST_P(KvOn, AttentionLosesNotMuchMoreThanStoring) {
  for (const Data data : {Data::normal, Data::outliers, Data::student}) {
    const std::int64_t n = 200, dim = 256;
    const auto count = static_cast<std::size_t>(n * dim);
    const std::vector<float> k = sample(data, count, 1), v = sample(data, count, 200),
                             q = random_floats(count * 2, 3);
    std::vector<std::vector<float>> y;
    for (const KvElement element : {KvElement::f32, KvElement::q8_0, KvElement::r4}) {
      Cache cache({element, 1, dim}, n);
      write(cache, k, v);
      y.push_back(attend(cache, q, n));
    }
    double whole = 0, q8_0 = 0, r4 = 0;
    for (std::size_t i = 0; i < y[0].size(); ++i) {
      const auto squared = [](float a) { return static_cast<double>(a) * static_cast<double>(a); };
      whole += squared(y[0][i]);
      q8_0 += squared(y[1][i] - y[0][i]);
      r4 += squared(y[2][i] - y[0][i]);
    }
    RecordProperty("q8_0_" + std::to_string(static_cast<int>(data)), std::to_string(q8_0 / whole));
    std::printf("data %d: relative squared error q8_0 %.2g, r4 %.2g\n", static_cast<int>(data),
                q8_0 / whole, r4 / whole);
    // Scores err too: by sqrt(error) of their spread, which outliers make large.
    EXPECT_LT(q8_0 / whole, data == Data::normal ? 1.5e-4 : 1.5e-3);
    EXPECT_LT(r4 / whole, data == Data::normal ? 0.03 : 0.1);
    EXPECT_GT(r4, q8_0);
  }
}

TEST_P(KvOn, RoundsToTheNearestCodeAndTiesToEven) {
  const KvShape shape{KvElement::q8_0, 1, 32};
  std::vector<float> x(32);
  const float from[] = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 100.4f};
  const double to[] = {127, 0, 2, 2, 0, -2, -2, 100};
  std::copy(std::begin(from), std::end(from), x.begin());
  Cache cache(shape, 1);
  write(cache, x, x);
  for (const bool key : {true, false})
    for (std::size_t i = 0; i < std::size(to); ++i)
      EXPECT_EQ(decoded(shape, cache.blocks[0], 0, 0, key)[i], to[i]) << from[i];
}

TEST_P(KvOn, ZerosDenormalsAndHugeValuesStayFinite) {
  for (const KvElement element : {KvElement::q8_0, KvElement::r4}) {
    const KvShape shape{element, 1, 128};
    for (const float size :
         {0.0f, 1e-45f, 1e-40f, 1e-20f, 1e-7f, 1e-3f, 1e3f, 1e6f, 1e12f, 3e38f}) {
      std::vector<float> x = random_floats(128, 5);
      for (float& f : x)
        f = std::clamp(f, -1.0f, 1.0f) * size;
      Cache cache(shape, 1);
      write(cache, x, x);
      const std::vector<double> y = decoded(shape, cache.blocks[0], 0, 0, true);
      double lost = 0, whole = 0;
      for (std::size_t i = 0; i < 128; ++i) {
        ASSERT_TRUE(std::isfinite(y[i])) << size;
        const auto want = static_cast<double>(x[i]);
        lost += (y[i] - want) * (y[i] - want);
        whole += want * want;
      }
      // In the range that scales of 16 bits reach.
      if (size >= 1e-3f && size <= 1e6f) {
        EXPECT_LT(lost / whole, 0.02) << size;
      } else {
        EXPECT_LE(lost, whole * 1.0001) << size;
      }
      if (size == 0.0f) {
        EXPECT_EQ(y, std::vector<double>(128, 0.0));
      }
      // One position: its weight is 1, whatever its score.
      for (const float v : attend(cache, random_floats(256, 6), 1))
        ASSERT_TRUE(std::isfinite(v)) << size;
    }
  }
}

TEST_P(KvOn, WhatIsNotANumberSpoilsItsRunOfValuesAndNoOther) {
  for (const float bad : {NAN, kInf, -kInf}) {
    for (const KvElement element : {KvElement::q8_0, KvElement::r4}) {
      const KvShape shape{element, 1, 256};
      const std::vector<float> k = random_floats(512, 1), q = random_floats(512, 3);
      std::vector<float> v = random_floats(512, 2);
      Cache clean(shape, 2), cache(shape, 2);
      write(clean, k, v);
      const std::vector<float> want = attend(clean, q, 2);
      v[256 + 7] = bad;
      write(cache, k, v);
      const std::vector<float> y = attend(cache, q, 2);
      const std::size_t spoiled = element == KvElement::q8_0 ? 32 : 128;
      for (std::size_t d = 0; d < 256; ++d) {
        ASSERT_EQ(y[d], want[d]);
        if (d < spoiled)
          ASSERT_TRUE(std::isnan(y[256 + d])) << d;
        else
          ASSERT_EQ(y[256 + d], want[256 + d]) << d;
      }
    }
  }
}

TEST_P(KvOn, AQueryThatIsNotANumberSpoilsItsHeadOnly) {
  for (const KvElement element : {KvElement::q8_0, KvElement::r4}) {
    const KvShape shape{element, 1, 128};
    const std::vector<float> k = random_floats(128 * 70, 1);
    std::vector<float> q = random_floats(2 * 128 * 70, 3);
    Cache cache(shape, 70);
    write(cache, k, k);
    const std::vector<float> want = attend(cache, q, 70);
    q[128 * 7] = kInf;
    const std::vector<float> y = attend(cache, q, 70);
    for (std::size_t i = 0; i < y.size(); ++i) {
      if (i / 128 == 7)
        ASSERT_TRUE(std::isnan(y[i]));
      else
        ASSERT_EQ(y[i], want[i]);
    }
  }
}

TEST_P(KvOn, ABlockCopiedByteForByteReadsTheSame) {
  for (const KvElement element : {KvElement::q8_0, KvElement::r4}) {
    const KvShape shape{element, 2, 64};
    const std::vector<float> k = random_floats(2 * 64 * 90, 1), v = random_floats(k.size(), 2),
                             q = random_floats(4 * 64 * 90, 3);
    Cache cache(shape, 90), copy(shape, 90);
    write(cache, k, v);
    for (std::size_t b = 0; b < 2; ++b)
      std::memcpy(copy.blocks[b], cache.blocks[b], kv_block_bytes(shape));
    EXPECT_TRUE(same_bits(attend(copy, q, 90), attend(cache, q, 90)));
  }
}

}  // namespace
}  // namespace ponder::kernels
