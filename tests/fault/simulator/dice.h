#pragma once
// Numbers from a seed, the same with every compiler.
#include <cstdint>
#include <random>

namespace ponder::simulator {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t number() { return engine_(); }
  /// 0 .. n - 1
  int below(int n) { return static_cast<int>(engine_() % static_cast<std::uint64_t>(n)); }
  int between(int least, int most) { return least + below(most - least + 1); }
  bool percent(int p) { return below(100) < p; }

 private:
  std::mt19937_64 engine_;
};

}  // namespace ponder::simulator
