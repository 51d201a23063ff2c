#pragma once
// Random numbers by address: a pure function of (seed, position, stream), so that nothing has to be
// stored to draw the same number again.
#include <cstdint>

namespace ponder::sample {

/// Uniform in [0, 1), a multiple of 2^-53. `stream` separates several draws at one position.
double uniform(std::uint64_t seed, std::uint64_t position, std::uint64_t stream = 0);

}  // namespace ponder::sample
