#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"
#include "tests/unit/kernels/kv_reference.h"

namespace ponder::kernels {
namespace {

struct Layer {
  KvShape shape;
  std::int64_t heads, n;
};
std::vector<Layer> layers() {
  std::vector<Layer> all;
  for (const KvElement element : {KvElement::f32, KvElement::f16}) {
    all.push_back({{element, 1, 256}, 4, 150});
    all.push_back({{element, 2, 48}, 6, 70});
    all.push_back({{element, 3, 64}, 3, 133});
  }
  for (const KvElement element : {KvElement::q8_0, KvElement::r4}) {
    all.push_back({{element, 1, 256}, 6, 100});
    all.push_back({{element, 2, 128}, 4, 70});
    all.push_back({{element, 3, 64}, 3, 133});
    all.push_back({{element, 1, 192}, 5, 40});
  }
  all.push_back({{KvElement::q8_0, 2, 96}, 2, 90});
  return all;
}

class AttentionOn : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, AttentionOn, ::testing::ValuesIn(runnable_cpu_ops()),
                         [](const auto& p) { return std::string(p.param->name); });

struct Inputs {
  explicit Inputs(const Layer& s, float scale = 1.0f) {
    const auto n = static_cast<std::size_t>(s.n), dim = static_cast<std::size_t>(s.shape.head_dim);
    q = random_floats(n * static_cast<std::size_t>(s.heads) * dim, 1, scale);
    k = random_floats(n * static_cast<std::size_t>(s.shape.kv_heads) * dim, 2, scale);
    v = random_floats(k.size(), 3);
  }
  std::vector<float> q, k, v;
};

void step(const OpTable& ops, const Stream& stream, const Layer& s, Cache& cache, const Inputs& in,
          std::int64_t first, std::int64_t n, std::vector<float>& y) {
  const std::int64_t kv = s.shape.kv_heads * s.shape.head_dim, qs = s.heads * s.shape.head_dim;
  KvWrite write;
  write.shape = s.shape;
  write.blocks = {cache.blocks.data(), cache.blocks.size()};
  write.first_position = first;
  write.n = n;
  write.k = in.k.data() + first * kv;
  write.v = in.v.data() + first * kv;
  ops.kv_write(stream, write);
  Attention op;
  op.shape = s.shape;
  op.blocks = cache.read();
  op.first_position = first;
  op.n = n;
  op.heads = s.heads;
  op.q = in.q.data() + first * qs;
  op.y = y.data() + first * qs;
  ops.attention(stream, op);
}

TEST_P(AttentionOn, AgreesWithAFloat64Softmax) {
  for (const Layer& s : layers()) {
    const Inputs in(s, 2.0f);
    Cache cache(s.shape, s.n);
    std::vector<float> y(in.q.size());
    step(ops(), {}, s, cache, in, 0, s.n, y);
    const std::int64_t dim = s.shape.head_dim, kv = s.shape.kv_heads;
    double worst = 0;
    for (std::int64_t g = 0; g < kv; ++g) {
      std::vector<std::vector<double>> keys, values;
      for (std::int64_t j = 0; j < s.n; ++j) {
        const std::byte* block = cache.blocks[static_cast<std::size_t>(j / 64)];
        keys.push_back(stored(s.shape, block, g, j % 64, true));
        values.push_back(decoded(s.shape, block, g, j % 64, false));
      }
      const std::int64_t group = s.heads / kv;
      for (std::int64_t row = g * group; row < s.n * s.heads; ++row) {
        const std::int64_t t = row / s.heads;
        if (row % s.heads / group != g) continue;
        const std::vector<double> q = taken_query(s.shape, in.q.data() + row * dim);
        std::vector<double> p;
        double largest = -1e300, sum = 0;
        for (std::int64_t j = 0; j <= t; ++j) {
          double dot = 0;
          for (std::size_t d = 0; d < q.size(); ++d)
            dot += q[d] * keys[static_cast<std::size_t>(j)][d];
          p.push_back(dot / std::sqrt(static_cast<double>(dim)));
          largest = std::max(largest, p.back());
        }
        for (double& x : p)
          sum += x = std::exp(x - largest);
        for (std::size_t d = 0; d < q.size(); ++d) {
          double want = 0;
          for (std::size_t j = 0; j < p.size(); ++j)
            want += p[j] / sum * values[j][d];
          worst = std::max(
              worst,
              std::fabs(want - static_cast<double>(y[static_cast<std::size_t>(row * dim) + d])));
        }
      }
    }
    // The quantised forms keep weights in 14 bits; and a rotated query whose code lies between two
    // may fall to either.
    const KvElement e = s.shape.element;
    EXPECT_LT(worst, e == KvElement::r4     ? 1e-3
                     : e == KvElement::q8_0 ? 2e-4
                                            : 2e-5)
        << "head_dim " << dim << ", element " << static_cast<int>(e);
  }
}

TEST_P(AttentionOn, ARowsBitsDoNotDependOnChunksThreadsOrTheInstructionSet) {
  for (const Layer& s : layers()) {
    const Inputs in(s);
    std::vector<float> want(in.q.size());
    {
      Cache cache(s.shape, s.n);
      for (std::int64_t t = 0; t < s.n; ++t)
        step(*runnable_cpu_ops().front(), {}, s, cache, in, t, 1, want);
    }
    constexpr std::pair<std::int64_t, int> kWays[] = {{1, 3},  {3, 1},    {16, 3},  {64, 1},
                                                      {65, 3}, {1000, 1}, {1000, 3}};
    for (const auto& [chunk, threads] : kWays) {
      ThreadPool pool(threads);
      Cache cache(s.shape, s.n);
      std::vector<float> y(in.q.size());
      for (std::int64_t t = 0; t < s.n; t += chunk)
        step(ops(), {&pool}, s, cache, in, t, std::min(chunk, s.n - t), y);
      ASSERT_TRUE(same_bits(y, want))
          << "chunk " << chunk << ", " << threads << " threads, head_dim " << s.shape.head_dim
          << ", element " << static_cast<int>(s.shape.element);
    }
  }
}

TEST_P(AttentionOn, LaterPositionsDoNotReachEarlierRowsEvenAsNaN) {
  for (const KvElement element : {KvElement::f32, KvElement::f16, KvElement::q8_0, KvElement::r4}) {
    const Layer s{{element, 1, 64}, 1, 10};
    Inputs in(s);
    std::vector<float> want(in.q.size()), y(in.q.size());
    Cache clean(s.shape, s.n);
    step(ops(), {}, s, clean, in, 0, s.n, want);
    for (std::size_t d = 0; d < 64; ++d)
      in.k[9 * 64 + d] = in.v[9 * 64 + d] = NAN;
    Cache cache(s.shape, s.n);
    step(ops(), {}, s, cache, in, 0, s.n, y);
    for (std::size_t i = 0; i < 9 * 64; ++i)
      ASSERT_EQ(y[i], want[i]) << "element " << static_cast<int>(element);
    EXPECT_TRUE(std::isnan(y[9 * 64])) << "element " << static_cast<int>(element);
  }
}

TEST_P(AttentionOn, LargeScoresDoNotOverflow) {
  const Layer s{{KvElement::f32, 1, 16}, 1, 100};
  const Inputs in(s, 100.0f);
  Cache cache(s.shape, s.n);
  std::vector<float> y(in.q.size());
  step(ops(), {}, s, cache, in, 0, s.n, y);
  for (const float v : y)
    ASSERT_TRUE(std::isfinite(v));
}

TEST_P(AttentionOn, ReadsQueriesThatLieBetweenGates) {
  const Layer s{{KvElement::f16, 1, 32}, 2, 20};
  const Inputs in(s);
  Cache cache(s.shape, s.n);
  std::vector<float> want(in.q.size()), y(in.q.size()), spread(in.q.size() * 2, NAN);
  step(ops(), {}, s, cache, in, 0, s.n, want);
  for (std::size_t r = 0; r < 40; ++r)
    for (std::size_t d = 0; d < 32; ++d)
      spread[r * 64 + d] = in.q[r * 32 + d];
  Attention op;
  op.shape = s.shape;
  op.blocks = cache.read();
  op.n = s.n;
  op.heads = 2;
  op.q = spread.data();
  op.q_head_stride = 64;
  op.y = y.data();
  ops().attention({}, op);
  EXPECT_TRUE(same_bits(y, want));
}

}  // namespace
}  // namespace ponder::kernels
