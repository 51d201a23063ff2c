#include "kernels/core/op_table.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "kernels/core/arena.h"

namespace ponder::kernels {
namespace {

class Environment : public ::testing::Test {
 protected:
  void TearDown() override { unsetenv("PONDER_CPU"); }
};

TEST_F(Environment, PonderCpuChoosesTheInstructionSet) {
  unsetenv("PONDER_CPU");
  EXPECT_EQ(cpu_ops().value(), runnable_cpu_ops().back());
  setenv("PONDER_CPU", "plain", 1);
  EXPECT_EQ(cpu_ops().value()->name, "plain");
  // A name given by the caller wins.
  for (const OpTable* table : runnable_cpu_ops())
    EXPECT_EQ(cpu_ops(table->name).value(), table);
}

TEST_F(Environment, AnUnknownInstructionSetIsRefusedByName) {
  setenv("PONDER_CPU", "sse9", 1);
  const auto result = cpu_ops();
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::bad_request);
  EXPECT_NE(result.error().message.find("PONDER_CPU=sse9"), std::string::npos);
  EXPECT_FALSE(cpu_ops("avx3"));
}

TEST(OpTable, EverySetHasEveryOp) {
  for (const OpTable* table : runnable_cpu_ops()) {
#define OP(name, arguments) EXPECT_NE(table->name, nullptr) << #name;
#include "kernels/core/op_list.inc"
#undef OP
  }
}

TEST(Arena, HandsOutAlignedZeroedPiecesUntilItIsEmpty) {
  Arena arena = Arena::make(3 << 20).value();
  EXPECT_GE(arena.size(), std::size_t{3} << 20);
  std::byte* a = arena.take(100);
  std::byte* b = arena.take(64);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(a) % Arena::kAlignment, 0u);
  EXPECT_EQ(b - a, 128);
  EXPECT_EQ(a[99], std::byte{0});
  EXPECT_EQ(arena.used(), 192u);
  arena.rewind();
  EXPECT_EQ(arena.take(1), a);
  EXPECT_DEATH(arena.take(arena.size()), "");
}

TEST(Arena, RefusesWhatNoMachineHas) {
  const auto arena = Arena::make(std::size_t{1} << 60);
  ASSERT_FALSE(arena);
  EXPECT_EQ(arena.error().code, ErrorCode::out_of_memory);
}

}  // namespace
}  // namespace ponder::kernels
