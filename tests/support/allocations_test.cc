#include "tests/support/allocations.h"

#include <gtest/gtest.h>

#include <new>

namespace ponder::testing {
namespace {

// Under ASan each form is a function of its own, and one that is not replaced is neither counted
// nor fit for our delete.
TEST(Allocations, EveryFormOfNewIsCounted) {
  const std::int64_t before = allocation_count();
  reset_largest_allocation();
  ::operator delete(::operator new(100));
  ::operator delete[](::operator new[](200));
  ::operator delete(::operator new(300, std::nothrow));
  ::operator delete[](::operator new[](400, std::nothrow), std::nothrow);
  EXPECT_EQ(allocation_count() - before, 4);
  EXPECT_EQ(largest_allocation(), 400U);
}

}  // namespace
}  // namespace ponder::testing
