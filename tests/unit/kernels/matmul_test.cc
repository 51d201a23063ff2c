// matmul on every instruction set and format: against a float64 oracle, against exact integers,
// and against itself cut into other batches, thread counts and instruction sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

/// y[n, sum of rows] of one call with several weights.
std::vector<float> product(const OpTable& ops, const std::vector<const Weight*>& weights,
                           const float* x, std::int64_t n, ThreadPool* pool = nullptr) {
  std::int64_t width = 0;
  for (const Weight* w : weights)
    width += w->rows;
  std::vector<float> y(static_cast<std::size_t>(n * width), -1.0f);
  std::vector<MatMulOutput> outputs;
  std::int64_t at = 0;
  for (const Weight* w : weights) {
    outputs.push_back({w, y.data() + at, width});
    at += w->rows;
  }
  MatMulColumns columns;
  for (const Weight* w : weights)
    columns.add(w->type, w->cols);
  const std::size_t bytes = matmul_workspace_bytes(n, columns);
  Arena workspace = Arena::make(bytes).value();
  MatMul op;
  op.x = x;
  op.n = n;
  op.outputs = outputs;
  op.workspace = {workspace.take(bytes), bytes};
  ops.matmul(Stream{pool}, op);
  return y;
}

struct Case {
  const OpTable* ops;
  DType type;
};
std::vector<Case> cases() {
  std::vector<Case> all;
  for (const OpTable* ops : runnable_cpu_ops())
    for (const DType type : all_types())
      all.push_back({ops, type});
  return all;
}
class MatMulOn : public ::testing::TestWithParam<Case> {};

/// What the op computes, in double: exact decode of the weights; for quantised formats the
/// quantised x. Also the sum of magnitudes, which errors are measured by.
struct Oracle {
  double value = 0, magnitude = 0;
};
Oracle oracle(const std::vector<float>& row, const float* x, bool quantised) {
  Oracle o;
  for (std::size_t start = 0; start < row.size(); start += 32) {
    const std::size_t end = std::min(start + 32, row.size());
    double largest = 0;
    for (std::size_t c = start; c < end; ++c)
      largest = std::max(largest, std::fabs(static_cast<double>(x[c])));
    for (std::size_t c = start; c < end; ++c) {
      double v = static_cast<double>(x[c]);
      if (quantised && largest > 0) {
        const float inverse = 127.0f / static_cast<float>(largest);
        v = std::nearbyint(static_cast<double>(x[c] * inverse)) * largest / 127.0;
      }
      o.value += v * static_cast<double>(row[c]);
      o.magnitude += std::fabs(v * static_cast<double>(row[c]));
    }
  }
  return o;
}

bool is_quantised(DType type) {
  return format(type).block_elements != 1;
}

TEST_P(MatMulOn, AgreesWithAFloat64Oracle) {
  const auto [ops, type] = GetParam();
  const std::int64_t rows = 37, cols = 768, n = 11;
  const std::vector<std::byte> source = random_rows(type, rows, cols, 5);
  const PackedWeight packed(type, rows, cols, source);
  const std::vector<float> x = random_floats(static_cast<std::size_t>(n * cols), 6);
  const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), n);
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    packed.weight.decode_row(r, row.data());
    for (std::int64_t t = 0; t < n; ++t) {
      const Oracle want = oracle(row, x.data() + t * cols, is_quantised(type));
      EXPECT_NEAR(y[static_cast<std::size_t>(t * rows + r)], want.value, 1e-6 * want.magnitude)
          << "row " << r << " token " << t;
    }
  }
}

TEST_P(MatMulOn, QuantisedTokensStayNearTheFloatProduct) {
  // int8 codes in runs of 32: the relative error of a dot product of 768 columns is below 1 %.
  const auto [ops, type] = GetParam();
  const std::int64_t rows = 32, cols = 768, n = 4;
  const PackedWeight packed(type, rows, cols, random_rows(type, rows, cols, 8));
  const std::vector<float> x = random_floats(static_cast<std::size_t>(n * cols), 9);
  const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), n);
  std::vector<float> row(static_cast<std::size_t>(cols));
  double error = 0, size = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    packed.weight.decode_row(r, row.data());
    for (std::int64_t t = 0; t < n; ++t) {
      const double want = oracle(row, x.data() + t * cols, false).value;
      const double got = static_cast<double>(y[static_cast<std::size_t>(t * rows + r)]);
      error += (got - want) * (got - want);
      size += want * want;
    }
  }
  EXPECT_LT(std::sqrt(error / size), is_quantised(type) ? 0.01 : 1e-6);
}

TEST_P(MatMulOn, ARowsBitsDoNotDependOnItsBatchOrTheInstructionSet) {
  const auto [ops, type] = GetParam();
  const OpTable& plain = *runnable_cpu_ops().front();
  for (const std::int64_t rows : {1, 15, 16, 17, 31, 48}) {
    const std::int64_t cols = 256 * (1 + rows % 3);
    const PackedWeight packed(type, rows, cols, random_rows(type, rows, cols, 21));
    const std::int64_t most = 19;
    const std::vector<float> x = random_floats(static_cast<std::size_t>(most * cols), 22);
    std::vector<float> single;
    for (std::int64_t t = 0; t < most; ++t) {
      const std::vector<float> y = product(plain, {&packed.weight}, x.data() + t * cols, 1);
      single.insert(single.end(), y.begin(), y.end());
    }
    for (std::int64_t n = 1; n <= most; ++n) {
      const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), n);
      const std::vector<float> want(single.begin(), single.begin() + n * rows);
      ASSERT_TRUE(same_bits(y, want)) << rows << " rows, " << n << " tokens";
    }
  }
}

TEST_P(MatMulOn, BitsDoNotDependOnThreadsOrOnOtherWeightsOfTheCall) {
  const auto [ops, type] = GetParam();
  const std::int64_t cols = 512, n = 40;
  const PackedWeight a(type, 300, cols, random_rows(type, 300, cols, 31));
  const PackedWeight b(DType::Q8_0, 6, cols, random_rows(DType::Q8_0, 6, cols, 32));
  const PackedWeight c(DType::F32, 70, cols, random_rows(DType::F32, 70, cols, 33));
  const std::vector<float> x = random_floats(static_cast<std::size_t>(n * cols), 34);
  const std::vector<float> together = product(*ops, {&a.weight, &b.weight, &c.weight}, x.data(), n);
  for (const int threads : {2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_TRUE(
        same_bits(together, product(*ops, {&a.weight, &b.weight, &c.weight}, x.data(), n, &pool)))
        << threads;
  }
  std::vector<float> apart(together.size());
  std::int64_t at = 0;
  for (const Weight* w : {&a.weight, &b.weight, &c.weight}) {
    const std::vector<float> y = product(*ops, {w}, x.data(), n);
    for (std::int64_t t = 0; t < n; ++t)
      std::copy_n(y.begin() + t * w->rows, w->rows, apart.begin() + t * 376 + at);
    at += w->rows;
  }
  EXPECT_TRUE(same_bits(together, apart));
}

TEST_P(MatMulOn, NonFiniteTokensMakeOnlyTheirOwnRowNaN) {
  const auto [ops, type] = GetParam();
  const std::int64_t cols = 256, rows = 16;
  const PackedWeight packed(type, rows, cols, random_rows(type, rows, cols, 41));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    std::vector<float> x = random_floats(3 * 256, 42);
    const std::vector<float> clean = product(*ops, {&packed.weight}, x.data(), 3);
    x[256 + 77] = bad;
    const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), 3);
    for (std::size_t r = 0; r < 16; ++r) {
      EXPECT_FALSE(std::isfinite(y[16 + r]));
      EXPECT_EQ(y[r], clean[r]);
      EXPECT_EQ(y[32 + r], clean[32 + r]);
    }
  }
}

/// Scales at the edges of their types: zeros, subnormals, negative and large ones.
std::vector<std::byte> extreme_rows(DType type, std::int64_t rows, std::int64_t cols) {
  std::vector<std::byte> source = random_rows(type, rows, cols, 45);
  std::mt19937 random(46);
  constexpr std::uint16_t kHalves[] = {0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0xb800, 0x5000};
  for (std::size_t at = 0; at < source.size(); at += format(type).block_bytes) {
    for (const std::size_t scale : f16_scales_at(type))
      std::memcpy(source.data() + at + scale, &kHalves[random() % std::size(kHalves)], 2);
    if (type == DType::MXFP4) source[at] = static_cast<std::byte>(random() % 140);
    if (type == DType::NVFP4)
      for (std::size_t i = 0; i < 4; ++i)
        source[at + i] = static_cast<std::byte>(i == 0 ? 0x7f + 0x80 * (random() % 2) : random());
  }
  return source;
}

TEST_P(MatMulOn, ExtremeScalesAgreeWithAFloat64Oracle) {
  const auto [ops, type] = GetParam();
  const std::int64_t rows = 48, cols = 512, n = 9;
  const PackedWeight packed(type, rows, cols, extreme_rows(type, rows, cols));
  const std::vector<float> x = random_floats(static_cast<std::size_t>(n * cols), 47);
  const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), n);
  std::vector<float> row(static_cast<std::size_t>(cols));
  for (std::int64_t r = 0; r < rows; ++r) {
    packed.weight.decode_row(r, row.data());
    for (std::int64_t t = 0; t < n; ++t) {
      const Oracle want = oracle(row, x.data() + t * cols, is_quantised(type));
      EXPECT_NEAR(y[static_cast<std::size_t>(t * rows + r)], want.value,
                  1e-6 * want.magnitude + 1e-40)
          << "row " << r << " token " << t;
    }
  }
  EXPECT_TRUE(same_bits(y, product(*runnable_cpu_ops().front(), {&packed.weight}, x.data(), n)));
}

TEST_P(MatMulOn, TheWeightsScaleMultipliesTheResult) {
  const auto [ops, type] = GetParam();
  PackedWeight packed(type, 21, 256, random_rows(type, 21, 256, 48));
  const std::vector<float> x = random_floats(5 * 256, 49);
  std::vector<float> want = product(*ops, {&packed.weight}, x.data(), 5);
  for (float& v : want)
    v *= 0.37f;
  packed.weight.scale = 0.37f;
  EXPECT_TRUE(same_bits(want, product(*ops, {&packed.weight}, x.data(), 5)));
}

TEST_P(MatMulOn, ZeroAndTinyTokensGiveFiniteResults) {
  const auto [ops, type] = GetParam();
  const PackedWeight packed(type, 16, 256, random_rows(type, 16, 256, 51));
  for (const float value : {0.0f, -0.0f, 1e-45f, 1e-38f, 1e-31f}) {
    const std::vector<float> x(256, value);
    for (const float y : product(*ops, {&packed.weight}, x.data(), 1)) {
      EXPECT_LT(std::fabs(y), 1e-27f);
    }
  }
}

/// Makes every weight of the block an integer: d = 1, scales 1, whole minima.
void unit_scales(DType type, std::byte* block) {
  const auto fill = [block](std::size_t from, std::size_t count, unsigned value) {
    std::fill_n(block + from, count, static_cast<std::byte>(value));
  };
  const std::vector<std::size_t> scales = f16_scales_at(type);
  for (std::size_t i = 0; i < scales.size(); ++i)
    put_f16(block + scales[i], i == 0 ? 1.0f : 3.0f);
  if (type == DType::Q2_K) fill(0, 16, 0x21);  // scale 1, minimum 2
  if (type == DType::Q3_K) {                   // 33 - 32
    fill(96, 8, 0x11);
    fill(104, 4, 0xaa);
  }
  if (type == DType::Q4_K || type == DType::Q5_K) {  // scale 1, minimum 0 or 5
    fill(4, 4, 0x01);
    fill(8, 4, 0x00);
    fill(12, 4, 0x51);
  }
  if (type == DType::Q6_K) fill(192, 16, 0x01);
  if (type == DType::IQ4_XS) {  // 33 - 32
    fill(2, 2, 0xaa);
    fill(4, 4, 0x11);
  }
  if (type == DType::MXFP4) fill(0, 1, 128);
  if (type == DType::NVFP4) fill(0, 4, 0x40);
}

/// With unit scales and tokens that are integers with 127 among
/// each 32, a product is an integer below 2^24 and every float on the way is exact.
TEST_P(MatMulOn, IntegerProductsAreExact) {
  const auto [ops, type] = GetParam();
  if (!is_quantised(type)) return;  // no integer products there
  const std::int64_t rows = 16, cols = 256;
  for (int kind = 0; kind < 6; ++kind) {
    std::vector<std::byte> source = random_rows(type, rows, cols, 60 + static_cast<unsigned>(kind));
    const std::size_t block_bytes = format(type).block_bytes;
    // Codes all ones, all zeros, or random; tokens +-127 or random.
    for (std::size_t i = 0; i < source.size(); ++i)
      if (kind < 4) source[i] = kind % 2 == 0 ? std::byte{0xff} : std::byte{0x00};
    if (type == DType::Q8_0 && kind < 4)
      for (std::byte& b : source)
        b = kind % 2 == 0 ? std::byte{0x80} : std::byte{0x7f};
    for (std::size_t at = 0; at < source.size(); at += block_bytes) {
      std::byte* block = source.data() + at;
      unit_scales(type, block);
    }
    const PackedWeight packed(type, rows, cols, source);
    std::vector<float> x(static_cast<std::size_t>(cols) * 9);
    std::mt19937 random(70);
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = static_cast<float>(static_cast<int>(random() % 255) - 127);
      if (kind == 0 || kind == 1) x[i] = 127;
      if (kind == 2 || kind == 3) x[i] = i % 2 == 0 ? 127 : -127;
      if (i % 32 == 0) x[i] = 127;
    }
    const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), 9);
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (std::size_t r = 0; r < 16; ++r) {
      packed.weight.decode_row(static_cast<std::int64_t>(r), row.data());
      for (std::size_t t = 0; t < 9; ++t) {
        std::int64_t want = 0;
        for (std::size_t c = 0; c < 256; ++c)
          want += static_cast<std::int64_t>(row[c]) * static_cast<std::int64_t>(x[t * 256 + c]);
        ASSERT_EQ(y[t * 16 + r], static_cast<float>(want)) << "kind " << kind << " row " << r;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, MatMulOn, ::testing::ValuesIn(cases()), [](const auto& p) {
  return std::string(p.param.ops->name) + "_" + std::string(format(p.param.type).name);
});

TEST(MatMulShapes, FloatColumnsNeedNotBeAMultipleOf32) {
  for (const OpTable* ops : runnable_cpu_ops())
    for (const std::int64_t cols : {1, 7, 31, 33, 100}) {
      const PackedWeight packed(DType::F32, 5, cols, random_rows(DType::F32, 5, cols, 81));
      const std::vector<float> x = random_floats(static_cast<std::size_t>(3 * cols), 82);
      const std::vector<float> y = product(*ops, {&packed.weight}, x.data(), 3);
      std::vector<float> row(static_cast<std::size_t>(cols));
      for (std::int64_t r = 0; r < 5; ++r) {
        packed.weight.decode_row(r, row.data());
        for (std::int64_t t = 0; t < 3; ++t) {
          const Oracle want = oracle(row, x.data() + t * cols, false);
          EXPECT_NEAR(y[static_cast<std::size_t>(t * 5 + r)], want.value, 1e-6 * want.magnitude);
        }
      }
    }
}

TEST(MatMulShapes, StridedTokensAndOutputsLeaveTheGapsAlone) {
  for (const OpTable* ops : runnable_cpu_ops()) {
    const PackedWeight packed(DType::Q8_0, 20, 64, random_rows(DType::Q8_0, 20, 64, 91));
    const std::vector<float> x = random_floats(5 * 100, 92);
    std::vector<float> dense(5 * 64);
    for (std::size_t t = 0; t < 5; ++t)
      std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(t * 100), 64,
                  dense.begin() + static_cast<std::ptrdiff_t>(t * 64));
    const std::vector<float> want = product(*ops, {&packed.weight}, dense.data(), 5);
    std::vector<float> y(5 * 33, 7.0f);
    const MatMulOutput output{&packed.weight, y.data(), 33};
    const std::size_t bytes = matmul_workspace_bytes(5, {.quantised = 64});
    Arena workspace = Arena::make(bytes).value();
    MatMul op;
    op.x = x.data();
    op.x_stride = 100;
    op.n = 5;
    op.outputs = {&output, 1};
    op.workspace = {workspace.take(bytes), bytes};
    ops->matmul(Stream{}, op);
    for (std::size_t t = 0; t < 5; ++t)
      for (std::size_t r = 0; r < 33; ++r)
        ASSERT_EQ(y[t * 33 + r], r < 20 ? want[t * 20 + r] : 7.0f);
  }
}

}  // namespace
}  // namespace ponder::kernels
