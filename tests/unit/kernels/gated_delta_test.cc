#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/ops/ops.h"
#include "tests/unit/kernels/cases.h"

namespace ponder::kernels {
namespace {

class GatedDeltaOn : public ::testing::TestWithParam<const OpTable*> {
 protected:
  const OpTable& ops() const { return *GetParam(); }
};
INSTANTIATE_TEST_SUITE_P(All, GatedDeltaOn, ::testing::ValuesIn(runnable_cpu_ops()),
                         [](const auto& p) { return std::string(p.param->name); });

TEST_P(GatedDeltaOn, HasTheReferenceValues) {
  // 8 x 8, 70 tokens. A strip has 16 value columns: the upper 8 get v = 0 and stay zero.
  const std::int64_t n = 70, stride = 8 + 8 + 16;
  std::vector<float> qkv(n * stride, 0.0f), decay(n), beta(n), state(8 * 16, 0.0f), o(n * 16);
  for (std::int64_t t = 0; t < n; ++t) {
    const double time = static_cast<double>(t);
    double q[8], k[8], qq = 1e-6, kk = 1e-6;
    for (int i = 0; i < 8; ++i) {
      q[i] = std::sin(.3 * time + .7 * i + .1);
      k[i] = std::cos(.2 * time + .5 * i + .3);
      qq += q[i] * q[i];
      kk += k[i] * k[i];
    }
    float* row = qkv.data() + t * stride;
    for (int i = 0; i < 8; ++i) {
      row[i] = static_cast<float>(q[i] / std::sqrt(qq) / std::sqrt(8.0));
      row[8 + i] = static_cast<float>(k[i] / std::sqrt(kk));
      row[16 + i] = static_cast<float>(std::sin(.11 * time - .4 * i + .9));
    }
    decay[static_cast<std::size_t>(t)] =
        static_cast<float>(std::exp(-0.2 * std::exp(std::sin(.17 * time))));
    beta[static_cast<std::size_t>(t)] =
        static_cast<float>(1 / (1 + std::exp(-std::cos(.23 * time))));
  }
  GatedDelta op{qkv.data(),
                qkv.data() + 8,
                qkv.data() + 16,
                stride,
                decay.data(),
                beta.data(),
                state.data(),
                o.data(),
                n,
                1,
                1,
                8,
                16};
  ops().gated_delta({}, op);
  const float first[] = {.12188254f, .0745967f,   .01553368f,  -.04598176f,
                         -.1002377f, -.13866831f, -.15520624f, -.14724052f};
  const float last[] = {.23028588f, .25036403f,  .2309152f,   .17500994f,
                        .09147446f, -.00650283f, -.10345346f, -.18407107f};
  const float row[] = {.43528219f,  .39476813f, .29192885f,  .14300043f,
                       -.02850461f, -.1955094f, -.33164756f, -.41542586f};
  for (std::size_t j = 0; j < 8; ++j) {
    EXPECT_NEAR(o[j], first[j], 1e-6f);
    EXPECT_NEAR(o[69 * 16 + j], last[j], 2e-6f);
    EXPECT_NEAR(state[j], row[j], 2e-6f);
  }
  double sum_o = 0, sum_s = 0, norm = 0;
  for (const float v : o)
    sum_o += static_cast<double>(v);
  for (const float v : state) {
    sum_s += static_cast<double>(v);
    norm += static_cast<double>(v) * static_cast<double>(v);
  }
  EXPECT_NEAR(sum_o, -3.7446390742, 2e-5);
  EXPECT_NEAR(sum_s, -5.1429647564, 1e-5);
  EXPECT_NEAR(std::sqrt(norm), 2.1750345683, 1e-6);
}

struct Inputs {
  Inputs(std::int64_t n, std::int64_t kh, std::int64_t vh, std::int64_t dk, std::int64_t dv) {
    stride = 2 * kh * dk + vh * dv;
    qkv = random_floats(static_cast<std::size_t>(n * stride), 1, 0.2f);
    decay = random_floats(static_cast<std::size_t>(n * vh), 2, 0.2f);
    beta = random_floats(decay.size(), 3, 0.3f);
    for (float& d : decay)
      d = std::fabs(d) + 0.5f;
    for (float& b : beta)
      b = std::fabs(b);
  }
  std::int64_t stride;
  std::vector<float> qkv, decay, beta;
};

TEST_P(GatedDeltaOn, AgreesWithAFloat64RecurrenceHeadByHead) {
  const std::int64_t n = 20, kh = 2, vh = 6, dk = 128, dv = 32;
  const Inputs in(n, kh, vh, dk, dv);
  std::vector<float> state = random_floats(static_cast<std::size_t>(vh * dk * dv), 4);
  std::vector<float> o(static_cast<std::size_t>(n * vh * dv));
  const auto where = [&](std::int64_t h, std::int64_t i, std::int64_t j) {
    return static_cast<std::size_t>(((h * dv / 16 + j / 16) * dk + i) * 16 + j % 16);
  };
  std::vector<double> s(state.begin(), state.end()), want(o.size());
  for (std::int64_t t = 0; t < n; ++t)
    for (std::int64_t h = 0; h < vh; ++h) {
      const float* q = in.qkv.data() + t * in.stride + h % kh * dk;
      const float* k = q + kh * dk;
      const float* v = in.qkv.data() + t * in.stride + 2 * kh * dk + h * dv;
      const auto gate = static_cast<std::size_t>(t * vh + h);
      for (std::int64_t j = 0; j < dv; ++j) {
        double recalled = 0, out = 0;
        for (std::int64_t i = 0; i < dk; ++i) {
          s[where(h, i, j)] *= static_cast<double>(in.decay[gate]);
          recalled += s[where(h, i, j)] * static_cast<double>(k[i]);
        }
        const double d =
            static_cast<double>(in.beta[gate]) * (static_cast<double>(v[j]) - recalled);
        for (std::int64_t i = 0; i < dk; ++i) {
          s[where(h, i, j)] += static_cast<double>(k[i]) * d;
          out += s[where(h, i, j)] * static_cast<double>(q[i]);
        }
        want[static_cast<std::size_t>((t * vh + h) * dv + j)] = out;
      }
    }
  ops().gated_delta({},
                    {in.qkv.data(), in.qkv.data() + kh * dk, in.qkv.data() + 2 * kh * dk, in.stride,
                     in.decay.data(), in.beta.data(), state.data(), o.data(), n, kh, vh, dk, dv});
  for (std::size_t i = 0; i < o.size(); ++i)
    ASSERT_NEAR(o[i], want[i], 2e-5) << i;
  for (std::size_t i = 0; i < s.size(); ++i)
    ASSERT_NEAR(state[i], s[i], 2e-5) << i;
}

TEST_P(GatedDeltaOn, BitsDoNotDependOnChunksThreadsOrTheInstructionSet) {
  const std::int64_t n = 23, kh = 2, vh = 6, dk = 64, dv = 48;
  const Inputs in(n, kh, vh, dk, dv);
  const std::vector<float> start = random_floats(static_cast<std::size_t>(vh * dk * dv), 5);
  const auto run = [&](const OpTable& table, std::int64_t chunk, ThreadPool* pool,
                       std::vector<float>& state) {
    std::vector<float> o(static_cast<std::size_t>(n * vh * dv));
    state = start;
    for (std::int64_t t = 0; t < n; t += chunk) {
      const float* row = in.qkv.data() + t * in.stride;
      table.gated_delta({pool}, {row, row + kh * dk, row + 2 * kh * dk, in.stride,
                                 in.decay.data() + t * vh, in.beta.data() + t * vh, state.data(),
                                 o.data() + t * vh * dv, std::min(chunk, n - t), kh, vh, dk, dv});
    }
    return o;
  };
  std::vector<float> want_state, state;
  const std::vector<float> want = run(*runnable_cpu_ops().front(), 1, nullptr, want_state);
  ThreadPool pool(3);
  for (const std::int64_t chunk : {1, 2, 7, 23})
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      EXPECT_TRUE(same_bits(run(ops(), chunk, threads, state), want)) << chunk;
      EXPECT_TRUE(same_bits(state, want_state)) << chunk;
    }
}

TEST_P(GatedDeltaOn, RowsOnTrialLeaveTheStateAndCanBeKeptLater) {
  const std::int64_t kh = 2, vh = 6, dk = 64, dv = 48, most = 16;
  const Inputs in(most, kh, vh, dk, dv);
  const std::vector<float> start = random_floats(static_cast<std::size_t>(vh * dk * dv), 5);
  ThreadPool pool(3);
  for (std::int64_t n = 1; n <= most; ++n) {
    std::vector<float> state = start, want_state = start;
    std::vector<float> o(static_cast<std::size_t>(n * vh * dv)), want(o.size());
    GatedDelta op{in.qkv.data(),
                  in.qkv.data() + kh * dk,
                  in.qkv.data() + 2 * kh * dk,
                  in.stride,
                  in.decay.data(),
                  in.beta.data(),
                  want_state.data(),
                  want.data(),
                  n,
                  kh,
                  vh,
                  dk,
                  dv};
    ops().gated_delta({}, op);
    op.state = state.data();
    op.o = o.data();
    op.leave_state = true;
    ops().gated_delta({&pool}, op);
    EXPECT_TRUE(same_bits(o, want)) << n;
    EXPECT_TRUE(same_bits(state, start)) << n;
    op.leave_state = false;
    op.o = nullptr;
    op.q = nullptr;
    ops().gated_delta({&pool}, op);
    EXPECT_TRUE(same_bits(state, want_state)) << n;
  }
}

}  // namespace
}  // namespace ponder::kernels
