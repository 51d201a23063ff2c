// What may still be taken, read from system files written here.
#include "engine/models/available_memory.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace ponder::models {
namespace {

namespace fs = std::filesystem;
constexpr std::uint64_t kGiB = 1ull << 30;

class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() {
    root = fs::temp_directory_path() / ("ponder-available-" + std::to_string(::getpid()));
    fs::remove_all(root);
  }
  ~AvailableMemory() override { fs::remove_all(root); }
  void write(const char* name, const std::string& text) {
    fs::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text;
  }
  void machine() {
    write("proc/meminfo", "MemTotal:  33554432 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\n");
  }
  void group2(const std::string& limit, std::uint64_t use, const std::string& stat) {
    write("sys/fs/cgroup/memory.max", limit);
    write("sys/fs/cgroup/memory.current", std::to_string(use));
    write("sys/fs/cgroup/memory.stat", stat);
  }
  fs::path root;
};

TEST_F(AvailableMemory, IsThatOfTheMachine) {
  machine();
  EXPECT_EQ(available_memory(root), 8 * kGiB);
}

TEST_F(AvailableMemory, IsWhatTheControlGroupLeavesAndItsPageCacheCountsAsFree) {
  machine();
  group2(std::to_string(4 * kGiB), 3 * kGiB, "anon 1\ninactive_file 1073741824\nactive_file 0\n");
  EXPECT_EQ(available_memory(root), 2 * kGiB);
  group2(std::to_string(4 * kGiB), 5 * kGiB, "anon 1\n");
  EXPECT_EQ(available_memory(root), 0u);
  group2("max", 3 * kGiB, "anon 1\n");
  EXPECT_EQ(available_memory(root), 8 * kGiB);
}

TEST_F(AvailableMemory, ReadsControlGroupsOfTheFirstVersionToo) {
  machine();
  const std::string at = "sys/fs/cgroup/memory/";
  write((at + "memory.limit_in_bytes").c_str(), std::to_string(2 * kGiB));
  write((at + "memory.usage_in_bytes").c_str(), std::to_string(kGiB));
  EXPECT_EQ(available_memory(root), kGiB);
  write((at + "memory.limit_in_bytes").c_str(), "9223372036854771712");
  EXPECT_EQ(available_memory(root), 8 * kGiB);
}

TEST_F(AvailableMemory, IsUnknownWhereNobodySays) {
  EXPECT_EQ(available_memory(root), std::nullopt);
}

#if defined(__linux__)
TEST(AvailableMemoryHere, IsKnown) {
  EXPECT_GT(available_memory().value_or(0), 1u << 24);
  EXPECT_LT(available_memory().value_or(UINT64_MAX), std::uint64_t{1} << 50);
}
#endif

}  // namespace
}  // namespace ponder::models
