#pragma once
// Counts what a test program takes from the heap. Linking this replaces operator new in the whole
// program.
#include <cstddef>
#include <cstdint>

namespace ponder::testing {

std::int64_t allocation_count();
/// Bytes of the largest single request since the last reset.
std::size_t largest_allocation();
void reset_largest_allocation();

}  // namespace ponder::testing
