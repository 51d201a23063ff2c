#pragma once
// How well counts agree with a law.
#include <cmath>
#include <cstdint>
#include <vector>

#include "engine/sample/sampler.h"

namespace ponder::test {

/// The chance of a chi-square value at least this large (Wilson and Hilferty 1931).
inline double chi_square_tail(double x, double degrees) {
  const double spread = 2.0 / (9.0 * degrees);
  const double z = (std::cbrt(x / degrees) - (1 - spread)) / std::sqrt(spread);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

/// How well `counts` agree with draws from `law`.
inline double agreement(const std::vector<std::int64_t>& counts, const std::vector<double>& law) {
  double n = 0;
  for (const std::int64_t c : counts)
    n += static_cast<double>(c);
  double x = 0, cells = 0;
  for (std::size_t i = 0; i < law.size(); ++i) {
    if (law[i] == 0) {
      if (counts[i] != 0) return 0;
      continue;
    }
    const double expected = n * law[i];
    x += (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) /
         expected;
    ++cells;
  }
  return chi_square_tail(x, cells - 1);
}

inline std::vector<double> softmax(const std::vector<float>& logits) {
  std::vector<double> law;
  double total = 0;
  for (const float x : logits)
    total += law.emplace_back(std::exp(static_cast<double>(x)));
  for (double& p : law)
    p /= total;
  return law;
}

inline sample::SamplerConfig plain(std::uint64_t seed) {
  sample::SamplerConfig config;
  config.temperature = 1;
  config.top_k = 0;
  config.top_p = 1;
  config.seed = seed;
  return config;
}

}  // namespace ponder::test
