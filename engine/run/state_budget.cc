#include "engine/run/state_budget.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace ponder::run {
namespace {

constexpr std::uint64_t kMiB = 1 << 20, kGiB = 1 << 30;
constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

/// Of /proc/meminfo, in bytes.
std::uint64_t system_available() {
  std::ifstream in("/proc/meminfo");
  std::string name, unit;
  std::uint64_t kib = 0;
  while (in >> name >> kib && std::getline(in, unit))
    if (name == "MemAvailable:") return kib * 1024;
  return kUnknown;
}

/// A number in a file; "max" and what is not there are unknown.
std::uint64_t number_in(const char* path) {
  std::ifstream in(path);
  std::uint64_t n = 0;
  return in >> n ? n : kUnknown;
}

std::uint64_t group_available() {
  const std::uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  return limit > used ? limit - used : 0;
}

}  // namespace

std::uint64_t available_memory() {
  const std::uint64_t available = std::min(system_available(), group_available());
  return available == kUnknown ? 0 : available;
}

StateBudget default_state_budget(std::uint64_t available) {
  return {std::clamp(available / 16, 64 * kMiB, 4 * kGiB), std::min(available / 8, 8 * kGiB)};
}

}  // namespace ponder::run
