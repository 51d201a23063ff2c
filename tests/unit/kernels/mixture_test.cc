// The router and the mix of a mixture of experts: against float64, on every instruction set with
// the same bits, and the rule for ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

class MixtureOn : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, MixtureOn, ::testing::ValuesIn(runnable_cpu_ops()),
                         [](const auto& p) { return std::string(p.param->name); });

struct Routes {
  std::vector<std::int32_t> ids;
  std::vector<float> weights;
};
Routes route(const OpTable& ops, const Stream& stream, const std::vector<float>& logits,
             std::int64_t experts, std::int64_t used) {
  const std::int64_t n = static_cast<std::int64_t>(logits.size()) / experts;
  Routes out{std::vector<std::int32_t>(n * used, -1), std::vector<float>(n * used, -1)};
  ops.route(stream, {logits.data(), out.ids.data(), out.weights.data(), n, experts, used});
  return out;
}

TEST_P(MixtureOn, RoutesToTheLargestOfTheSoftmaxAndRenormalises) {
  for (const auto& [experts, used] :
       {std::pair<std::int64_t, std::int64_t>{16, 4}, {5, 5}, {256, 8}, {33, 1}, {512, 10}}) {
    const std::int64_t n = 9;
    const std::vector<float> logits = random_floats(n * experts, 31, 4);
    const Routes got = route(ops(), {}, logits, experts, used);
    for (std::int64_t t = 0; t < n; ++t) {
      const float* row = logits.data() + t * experts;
      std::vector<std::int32_t> order(experts);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return row[a] > row[b]; });
      double sum = 0;
      for (std::int64_t r = 0; r < used; ++r)
        sum += std::exp(static_cast<double>(row[order[r]]));
      for (std::int64_t r = 0; r < used; ++r) {
        EXPECT_EQ(got.ids[t * used + r], order[r]);
        const double want = std::exp(static_cast<double>(row[order[r]])) / sum;
        EXPECT_NEAR(got.weights[t * used + r], want, 2e-6 * want);
      }
    }
    ThreadPool pool(3);
    const Routes threaded = route(ops(), {&pool}, logits, experts, used);
    const Routes plain = route(*runnable_cpu_ops().front(), {}, logits, experts, used);
    EXPECT_TRUE(same_bits(threaded.weights, got.weights));
    EXPECT_TRUE(same_bits(plain.weights, got.weights));
    EXPECT_EQ(threaded.ids, got.ids);
  }
}

TEST_P(MixtureOn, OfEqualLogitsTheLowerNumberIsTaken) {
  const Routes all = route(ops(), {}, std::vector<float>(40, 0.25f), 40, 3);
  EXPECT_EQ(all.ids, (std::vector<std::int32_t>{0, 1, 2}));
  for (const float w : all.weights)
    EXPECT_FLOAT_EQ(w, 1.0f / 3);
  const Routes some = route(ops(), {}, {1, 3, 2, 3, 0, 2, 2, -1}, 8, 4);
  EXPECT_EQ(some.ids, (std::vector<std::int32_t>{1, 3, 2, 5}));
}

TEST_P(MixtureOn, ExtremeLogitsStayNumbersAndNanStaysInBounds) {
  const Routes far = route(ops(), {}, {-3e38f, 3e38f, 1, 0}, 4, 2);
  EXPECT_EQ(far.ids, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(far.weights, (std::vector<float>{1, 0}));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Routes bad = route(ops(), {}, {nan, 1, nan, 2}, 4, 4);
  std::vector<std::int32_t> ids = bad.ids;
  std::sort(ids.begin(), ids.end());
  EXPECT_EQ(ids, (std::vector<std::int32_t>{0, 1, 2, 3}));
}

TEST_P(MixtureOn, MixesInOrderOfRankAndAddsTheGatedSharedExpert) {
  for (const std::int64_t cols : {1, 40, 128, 130}) {
    const std::int64_t n = 6, used = 3;
    const std::vector<float> x = random_floats(n * used * cols, 41),
                             shared = random_floats(n * cols, 42),
                             gate_x = random_floats(n * cols, 43), gate_w = random_floats(cols, 44),
                             weights = random_floats(n * used, 45);
    std::vector<std::int32_t> slots(n * used);
    for (std::int64_t i = 0; i < n * used; ++i)
      slots[i] = static_cast<std::int32_t>((i * 7 + 5) % (n * used));
    const auto run = [&](const OpTable& o, const Stream& s, bool with_shared, std::int64_t first,
                         std::int64_t rows, std::vector<float>& y) {
      Mix op;
      op.x = x.data();
      op.slots = slots.data() + first * used;
      op.weights = weights.data() + first * used;
      op.y = y.data() + first * cols;
      op.n = rows;
      op.used = used;
      op.cols = cols;
      if (with_shared) {
        op.shared = shared.data() + first * cols;
        op.gate_x = gate_x.data() + first * cols;
        op.gate_w = gate_w.data();
      }
      o.mix(s, op);
    };
    for (const bool with_shared : {false, true}) {
      std::vector<float> y(n * cols), again(n * cols);
      run(ops(), {}, with_shared, 0, n, y);
      for (std::int64_t t = 0; t < n; ++t) {
        double gate = 0;
        for (std::int64_t c = 0; c < cols; ++c)
          gate += static_cast<double>(gate_x[t * cols + c]) * static_cast<double>(gate_w[c]);
        gate = 1 / (1 + std::exp(-gate));
        for (std::int64_t c = 0; c < cols; ++c) {
          double want = with_shared ? gate * static_cast<double>(shared[t * cols + c]) : 0;
          for (std::int64_t r = 0; r < used; ++r)
            want += static_cast<double>(weights[t * used + r]) *
                    static_cast<double>(x[slots[t * used + r] * cols + c]);
          EXPECT_NEAR(y[t * cols + c], want, 3e-6) << t << " " << c;
        }
      }
      for (std::int64_t t = 0; t < n; ++t)
        run(*runnable_cpu_ops().front(), {}, with_shared, t, 1, again);
      EXPECT_TRUE(same_bits(again, y));
      ThreadPool pool(3);
      run(ops(), {&pool}, with_shared, 0, n, again);
      EXPECT_TRUE(same_bits(again, y));
    }
  }
}

}  // namespace
}  // namespace ponder::kernels
