// Norms, gates, convolution, rotary embedding and the cache-free small ops: each against float64
// and, on every instruction set, bit-equal to the plain one, cut into any batches.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

class OpsOn : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, OpsOn, ::testing::ValuesIn(runnable_cpu_ops()),
                         [](const auto& p) { return std::string(p.param->name); });

/// run(ops, stream, first row, rows) must give, for rows 0..n-1, the same bits as the plain ops
/// row by row: at once, in two pieces at every cut, and with threads.
using RunRows = std::function<void(const OpTable&, const Stream&, std::int64_t, std::int64_t)>;
void expect_rows_independent(
    const OpTable& ops, std::int64_t n, std::vector<float>& out, const RunRows& run,
    const std::function<void()>& reset = [] {}) {
  const OpTable& plain = *runnable_cpu_ops().front();
  const auto fresh = [&] {
    reset();
    std::fill(out.begin(), out.end(), -3.0f);
  };
  fresh();
  for (std::int64_t t = 0; t < n; ++t)
    run(plain, {}, t, 1);
  const std::vector<float> want = out;
  for (std::int64_t cut = 0; cut < n; cut += 1 + n / 5) {
    fresh();
    if (cut > 0) run(ops, {}, 0, cut);
    run(ops, {}, cut, n - cut);
    ASSERT_TRUE(same_bits(out, want)) << "cut at " << cut;
  }
  ThreadPool pool(3);
  fresh();
  run(ops, {&pool}, 0, n);
  ASSERT_TRUE(same_bits(out, want)) << "with threads";
}

double silu(double x) {
  return x / (1 + std::exp(-x));
}

TEST_P(OpsOn, RmsNormDividesByTheRootOfTheMeanSquare) {
  for (const std::int64_t cols : {1, 15, 16, 100, 512}) {
    const std::int64_t n = 7;
    const auto at = [&](std::int64_t t, std::int64_t c) {
      return static_cast<std::size_t>(t * cols + c);
    };
    const std::vector<float> x = random_floats(at(n, 0), 1), z = random_floats(at(n, 0), 2, 5);
    const std::vector<float> w = random_floats(at(1, 0), 3);
    std::vector<float> y(x.size()), gated(x.size());
    const RunRows norm = [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
      o.rms_norm(s, {x.data() + t * cols, w.data(), y.data() + t * cols, rows, cols});
    };
    const RunRows gate = [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
      o.gated_rms_norm(s, {x.data() + t * cols, w.data(), z.data() + t * cols,
                           gated.data() + t * cols, rows, cols});
    };
    expect_rows_independent(ops(), n, y, norm);
    expect_rows_independent(ops(), n, gated, gate);
    for (std::int64_t t = 0; t < n; ++t) {
      double square = 0;
      for (std::int64_t c = 0; c < cols; ++c)
        square += std::pow(static_cast<double>(x[at(t, c)]), 2);
      const double scale = 1 / std::sqrt(square / static_cast<double>(cols) + 1e-6);
      for (std::int64_t c = 0; c < cols; ++c) {
        const double want =
            static_cast<double>(x[at(t, c)]) * scale * static_cast<double>(w[at(0, c)]);
        EXPECT_NEAR(y[at(t, c)], want, 1e-6 * std::fabs(want));
        const double both = want * silu(static_cast<double>(z[at(t, c)]));
        EXPECT_NEAR(gated[at(t, c)], both, 2e-6 * std::fabs(both));
      }
    }
  }
}

TEST_P(OpsOn, RmsNormWorksInPlaceAndOnStridedHeads) {
  std::vector<float> x = random_floats(6 * 64, 4);
  const std::vector<float> before = x, w = random_floats(32, 5);
  std::vector<float> y(6 * 32);
  RmsNorm apart{x.data(), w.data(), y.data(), 6, 32};
  apart.x_stride = 64;
  ops().rms_norm({}, apart);
  RmsNorm in_place{x.data(), w.data(), x.data(), 6, 32};
  in_place.x_stride = in_place.y_stride = 64;
  ops().rms_norm({}, in_place);
  for (std::size_t r = 0; r < 6; ++r)
    for (std::size_t c = 0; c < 64; ++c)
      EXPECT_EQ(x[r * 64 + c], c < 32 ? y[r * 32 + c] : before[r * 64 + c]);
}

TEST_P(OpsOn, L2NormScalesHeadsToUnitLength) {
  const std::int64_t n = 5, heads = 3, cols = 128, stride = 500;
  const std::vector<float> before = random_floats(n * stride, 6);
  std::vector<float> x = before;
  const RunRows run = [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
    L2Norm op;
    op.x = x.data() + t * stride;
    op.rows = rows;
    op.heads = heads;
    op.cols = cols;
    op.row_stride = stride;
    op.scale = 0.25f;
    o.l2_norm(s, op);
  };
  // In place: start each run from the same input.
  const OpTable& plain = *runnable_cpu_ops().front();
  for (std::int64_t t = 0; t < n; ++t)
    run(plain, {}, t, 1);
  const std::vector<float> want = x;
  ThreadPool pool(2);
  for (const Stream stream : {Stream{}, Stream{&pool}}) {
    x = before;
    run(ops(), stream, 0, n);
    EXPECT_TRUE(same_bits(x, want));
  }
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t c = 0; c < stride; ++c) {
      const auto i = static_cast<std::size_t>(t * stride + c);
      if (c >= heads * cols) {
        EXPECT_EQ(x[i], before[i]);
        continue;
      }
      double square = 1e-6;
      for (std::int64_t j = 0; j < cols; ++j)
        square += std::pow(
            static_cast<double>(before[static_cast<std::size_t>(t * stride + c / cols * cols + j)]),
            2);
      EXPECT_NEAR(x[i], 0.25 * static_cast<double>(before[i]) / std::sqrt(square), 1e-6);
    }
}

TEST_P(OpsOn, AddSwiGluAndSigmoidGateAgreeWithFloat64) {
  for (const std::int64_t cols : {1, 16, 19, 260}) {
    const std::int64_t n = 6;
    const auto size = static_cast<std::size_t>(n * cols);
    const std::vector<float> a = random_floats(size, 11, 8), b = random_floats(size, 12, 8);
    std::vector<float> sum(size), glu(size), gate(size);
    expect_rows_independent(
        ops(), n, sum, [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
          o.add(s, {a.data() + t * cols, b.data() + t * cols, sum.data() + t * cols, rows * cols});
        });
    expect_rows_independent(
        ops(), n, glu, [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
          o.swiglu(s,
                   {a.data() + t * cols, b.data() + t * cols, glu.data() + t * cols, rows, cols});
        });
    expect_rows_independent(
        ops(), n, gate, [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
          o.sigmoid_gate(
              s, {a.data() + t * cols, b.data() + t * cols, gate.data() + t * cols, rows, cols});
        });
    for (std::size_t i = 0; i < size; ++i) {
      const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
      EXPECT_EQ(sum[i], a[i] + b[i]);
      EXPECT_NEAR(glu[i], silu(x) * y, 1e-6 * std::fabs(silu(x) * y));
      EXPECT_NEAR(gate[i], x / (1 + std::exp(-y)), 1e-6 * std::fabs(x / (1 + std::exp(-y))));
    }
  }
}

TEST_P(OpsOn, RopeTurnsTheFirstDimensionsAndHasTheReferenceValues) {
  std::vector<float> x(256), table(64);
  for (std::size_t i = 0; i < 256; ++i)
    x[i] = static_cast<float>(std::sin(0.01 * static_cast<double>(i) + 0.5));
  rope_table(1000, 1, 64, 1e7, table.data());
  Rope op;
  op.x = x.data();
  op.table = table.data();
  op.n = 1;
  op.heads = 1;
  op.rot = 64;
  op.head_stride = op.row_stride = 256;
  ops().rope({}, op);
  const std::pair<std::size_t, float> want[] = {
      {0, -0.33495064f}, {1, -0.44435025f}, {10, 0.38582141f}, {31, 0.7241375f},
      {32, 0.80760829f}, {33, 0.7651226f},  {63, 0.90453203f}, {64, 0.9086335f}};
  for (const auto& [i, value] : want)
    EXPECT_NEAR(x[i], value, 3e-6f) << i;
  for (std::size_t i = 64; i < 256; ++i)
    EXPECT_EQ(x[i], static_cast<float>(std::sin(0.01 * static_cast<double>(i) + 0.5)));
}

TEST_P(OpsOn, InterleavedRopeTurnsNeighboursAsNeoxTurnsHalves) {
  for (const std::int64_t rot : {2, 24, 64, 128}) {
    const std::int64_t n = 5, heads = 3, dim = 130, half = rot / 2;
    const std::vector<float> before = random_floats(n * heads * dim, 21);
    std::vector<float> table(n * rot), halves = before, x = before;
    rope_table(7, n, rot, 1e5, table.data());
    for (std::int64_t h = 0; h < n * heads; ++h)  // the same pairs, laid apart
      for (std::int64_t i = 0; i < half; ++i) {
        halves[h * dim + i] = before[h * dim + 2 * i];
        halves[h * dim + half + i] = before[h * dim + 2 * i + 1];
      }
    ops().rope({}, {halves.data(), table.data(), n, heads, rot, dim, heads * dim});
    ops().rope({}, {x.data(), table.data(), n, heads, rot, dim, heads * dim, true});
    for (std::int64_t h = 0; h < n * heads; ++h)
      for (std::int64_t i = 0; i < dim; ++i) {
        const std::int64_t from = i >= rot ? i : i % 2 * half + i / 2;
        ASSERT_EQ(x[h * dim + i], halves[h * dim + from]) << rot << " " << h << " " << i;
      }
  }
}

TEST(RopeTable, DivisorsSlowTheFrequenciesDown) {
  std::vector<float> table(8), plain(8);
  const std::vector<float> divisors = {1, 1, 8, 32};
  rope_table(1000, 1, 8, 5e5, table.data(), divisors.data());
  rope_table(1000, 1, 8, 5e5, plain.data());
  for (std::size_t i = 0; i < 4; ++i) {
    const double angle =
        1000 * std::pow(5e5, -static_cast<double>(i) / 4) / static_cast<double>(divisors[i]);
    EXPECT_NEAR(table[i], std::cos(angle), 1e-6);
    EXPECT_NEAR(table[4 + i], std::sin(angle), 1e-6);
  }
  EXPECT_EQ(table[1], plain[1]);
  EXPECT_NE(table[2], plain[2]);
}

TEST_P(OpsOn, RopeOfARowDoesNotDependOnTheBatch) {
  const std::int64_t n = 9, heads = 3, dim = 40, rot = 24;
  const std::vector<float> before = random_floats(n * heads * dim, 14);
  std::vector<float> x = before, table(n * rot), one(rot);
  rope_table(100, n, rot, 1e4, table.data());
  const OpTable& plain = *runnable_cpu_ops().front();
  for (std::int64_t t = 0; t < n; ++t) {
    rope_table(100 + t, 1, rot, 1e4, one.data());
    plain.rope({}, {x.data() + t * heads * dim, one.data(), 1, heads, rot, dim, heads * dim});
  }
  const std::vector<float> want = x;
  x = before;
  ops().rope({}, {x.data(), table.data(), n, heads, rot, dim, heads * dim});
  EXPECT_TRUE(same_bits(x, want));
}

TEST_P(OpsOn, ConvolutionOnTrialLeavesItsTail) {
  const std::int64_t channels = 83, n = 5;
  const std::vector<float> x = random_floats(5 * 83, 15), weight = random_floats(4 * 83, 16),
                           start = random_floats(3 * 83, 17);
  std::vector<float> taps(4 * 83), tail = start, moved = start, y(x.size()), want(x.size());
  conv_taps(weight.data(), channels, taps.data());
  ConvSilu op{x.data(), taps.data(), moved.data(), want.data(), n, channels};
  ops().conv_silu({}, op);
  op.tail = tail.data();
  op.y = y.data();
  op.leave_tail = true;
  ops().conv_silu({}, op);
  EXPECT_TRUE(same_bits(y, want));
  EXPECT_TRUE(same_bits(tail, start));
}

TEST_P(OpsOn, ConvolutionAgreesWithFloat64AndCarriesItsTail) {
  for (const std::int64_t channels : {5, 16, 83}) {
    const std::int64_t n = 12;
    const auto size = static_cast<std::size_t>(n * channels);
    const auto wide = static_cast<std::size_t>(channels);
    const std::vector<float> x = random_floats(size, 15), weight = random_floats(4 * wide, 16);
    const std::vector<float> start = random_floats(3 * wide, 17);
    std::vector<float> taps(4 * wide), tail = start, y(size);
    conv_taps(weight.data(), channels, taps.data());
    expect_rows_independent(
        ops(), n, y,
        [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
          o.conv_silu(s, {x.data() + t * channels, taps.data(), tail.data(),
                          y.data() + t * channels, rows, channels});
        },
        [&] { tail = start; });
    const auto input = [&](std::int64_t t, std::int64_t c) {
      return static_cast<double>(t < 0 ? start[static_cast<std::size_t>((t + 3) * channels + c)]
                                       : x[static_cast<std::size_t>(t * channels + c)]);
    };
    for (std::int64_t t = 0; t < n; ++t)
      for (std::int64_t c = 0; c < channels; ++c) {
        double u = 0;
        for (std::int64_t j = 0; j < 4; ++j)
          u += static_cast<double>(weight[static_cast<std::size_t>(c * 4 + j)]) *
               input(t - 3 + j, c);
        EXPECT_NEAR(y[static_cast<std::size_t>(t * channels + c)], silu(u), 2e-6);
      }
    for (std::int64_t j = 0; j < 3; ++j)
      for (std::int64_t c = 0; c < channels; ++c)
        EXPECT_EQ(tail[static_cast<std::size_t>(j * channels + c)],
                  x[static_cast<std::size_t>((n - 3 + j) * channels + c)]);
  }
}

TEST_P(OpsOn, GatesOfTheDeltaRuleAgreeWithFloat64) {
  const std::int64_t n = 40, heads = 6;
  const auto size = static_cast<std::size_t>(n * heads);
  const std::vector<float> a = random_floats(size, 18, 20), b = random_floats(size, 19, 6);
  std::vector<float> ssm_a(6), ssm_dt = random_floats(6, 20);
  for (std::size_t h = 0; h < 6; ++h)
    ssm_a[h] = -0.05f * static_cast<float>(h + 1);
  std::vector<float> decay(size), beta(size);
  expect_rows_independent(
      ops(), n, decay, [&](const OpTable& o, const Stream& s, std::int64_t t, std::int64_t rows) {
        o.gated_delta_gates(
            s, {a.data() + t * heads, b.data() + t * heads, ssm_a.data(), ssm_dt.data(),
                decay.data() + t * heads, beta.data() + t * heads, rows, heads});
      });
  for (std::size_t i = 0; i < size; ++i) {
    const double x = static_cast<double>(a[i]) + static_cast<double>(ssm_dt[i % 6]);
    const double want = std::exp(static_cast<double>(ssm_a[i % 6]) * std::log1p(std::exp(x)));
    EXPECT_NEAR(decay[i], want, 2e-6 * want) << x;
    EXPECT_NEAR(beta[i], 1 / (1 + std::exp(-static_cast<double>(b[i]))), 1e-6);
  }
}

}  // namespace
}  // namespace ponder::kernels
