// The vector exponential and its relatives, through the ops that use them, against double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/core/op_table.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/simd_plain.h"
#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

double ulps(float got, double want) {
  const auto nearest = static_cast<float>(want);
  double spacing = static_cast<double>(std::nextafterf(std::fabs(nearest), INFINITY)) -
                   static_cast<double>(std::fabs(nearest));
  spacing = std::max(spacing, 1.401298464324817e-45);
  return std::fabs(static_cast<double>(got) - want) / spacing;
}

float one(Plain::F (*f)(Plain::F), float x) {
  return f(Plain::set1(x)).v[0];
}

TEST(VectorMath, ExpIsWithinAnUlpAndAQuarter) {
  double worst = 0;
  for (float x = -104.0f; x < 88.73f; x += 0.00173f)
    worst = std::max(worst, ulps(one(vector_exp<Plain>, x), std::exp(static_cast<double>(x))));
  EXPECT_LT(worst, 1.25);
  EXPECT_EQ(one(vector_exp<Plain>, 0.0f), 1.0f);
  EXPECT_EQ(one(vector_exp<Plain>, -0.0f), 1.0f);
  EXPECT_EQ(one(vector_exp<Plain>, -INFINITY), 0.0f);
  EXPECT_EQ(one(vector_exp<Plain>, INFINITY), INFINITY);
  EXPECT_EQ(one(vector_exp<Plain>, 88.8f), INFINITY);
  EXPECT_TRUE(std::isnan(one(vector_exp<Plain>, NAN)));
}

TEST(VectorMath, SoftplusIsWithinThreeUlps) {
  double worst = 0;
  for (float x = -100.0f; x < 100.0f; x += 0.00171f) {
    const double y = static_cast<double>(x);
    const double want = y > 0 ? y + std::log1p(std::exp(-y)) : std::log1p(std::exp(y));
    worst = std::max(worst, ulps(one(vector_softplus<Plain>, x), want));
  }
  EXPECT_LT(worst, 3.0);
  EXPECT_EQ(one(vector_softplus<Plain>, 1e30f), 1e30f);
  EXPECT_EQ(one(vector_softplus<Plain>, -INFINITY), 0.0f);
  EXPECT_TRUE(std::isnan(one(vector_softplus<Plain>, NAN)));
}

TEST(VectorMath, SigmoidAndSiluAreWithinThreeUlpsAndSaturate) {
  double sigmoid = 0, silu = 0;
  for (float x = -80.0f; x < 80.0f; x += 0.00171f) {
    const double want = 1 / (1 + std::exp(-static_cast<double>(x)));
    sigmoid = std::max(sigmoid, ulps(one(vector_sigmoid<Plain>, x), want));
    silu = std::max(silu, ulps(one(vector_silu<Plain>, x), want * static_cast<double>(x)));
  }
  EXPECT_LT(sigmoid, 3.0);
  EXPECT_LT(silu, 3.0);
  EXPECT_EQ(one(vector_sigmoid<Plain>, -INFINITY), 0.0f);
  EXPECT_EQ(one(vector_sigmoid<Plain>, INFINITY), 1.0f);
  EXPECT_EQ(one(vector_silu<Plain>, -1000.0f), 0.0f);
}

TEST(VectorMath, EveryInstructionSetComputesTheSameBits) {
  std::vector<float> x, ones;
  for (float v = -110.0f; v < 110.0f; v += 0.0137f)
    x.push_back(v);
  for (const float v : {0.0f, -0.0f, INFINITY, -INFINITY, 1e-40f, -1e-40f, 88.72f, 88.73f})
    x.push_back(v);
  ones.assign(x.size(), 1.0f);
  std::vector<float> want;
  for (const OpTable* ops : runnable_cpu_ops()) {
    std::vector<float> y(3 * x.size());
    const auto n = static_cast<std::int64_t>(x.size());
    ops->swiglu({}, {x.data(), ones.data(), y.data(), 1, n});
    ops->sigmoid_gate({}, {ones.data(), x.data(), y.data() + n, 1, n});
    const std::vector<float> minus(x.size(), -1.0f), zero(x.size(), 0.0f);
    std::vector<float> beta(x.size());
    ops->gated_delta_gates(
        {}, {x.data(), x.data(), minus.data(), zero.data(), y.data() + 2 * n, beta.data(), 1, n});
    if (want.empty()) want = y;
    EXPECT_TRUE(same_bits(y, want)) << ops->name;
  }
}

}  // namespace
}  // namespace ponder::kernels
