#include "engine/sample/random.h"

namespace ponder::sample {
namespace {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection whose output bits each depend
/// on every input bit.
std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9;
  x ^= x >> 27;
  x *= 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;

}  // namespace

double uniform(std::uint64_t seed, std::uint64_t position, std::uint64_t stream) {
  // one round for each word, so that neighbouring seeds and neighbouring positions share nothing
  std::uint64_t x = mix(seed + kGolden);
  x = mix(x + kGolden * (position + 1));
  x = mix(x + kGolden * (stream + 1));
  return static_cast<double>(x >> 11) * 0x1p-53;
}

}  // namespace ponder::sample
