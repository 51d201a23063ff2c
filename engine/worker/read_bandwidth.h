#pragma once
#include <cstdint>

namespace ponder::worker {

/// How fast this machine reads memory: gigabytes (1e9) a second, the best of several passes of
/// `threads` threads over a buffer of `bytes`. The ceiling of a decode step that streams as much.
double measure_read_gb_per_s(std::uint64_t bytes, int threads);

}  // namespace ponder::worker
