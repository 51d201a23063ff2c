#include "tests/support/allocations.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

namespace {
std::atomic<std::int64_t> count{0};
std::atomic<std::size_t> largest{0};

void* counted(std::size_t size) {
  ++count;
  largest.store(std::max(largest.load(), size));
  return std::malloc(size == 0 ? 1 : size);
}
}  // namespace

// All forms but the aligned ones: under ASan a form that is not replaced is the sanitizer's own,
// and what that gives is not for our delete.
void* operator new(std::size_t size) {
  if (void* memory = counted(size)) return memory;
  throw std::bad_alloc();
}
void* operator new[](std::size_t size) {
  return operator new(size);
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
  return counted(size);
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, const std::nothrow_t&) noexcept {
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
