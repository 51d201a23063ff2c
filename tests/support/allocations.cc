#include "tests/support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> count{0};
std::atomic<std::size_t> largest{0};
}  // namespace

void* operator new(std::size_t size) {
  ++count;
  largest.store(std::max(largest.load(), size));
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace ponder::testing {

std::int64_t allocation_count() {
  return count;
}
std::size_t largest_allocation() {
  return largest;
}
void reset_largest_allocation() {
  largest = 0;
}

}  // namespace ponder::testing
