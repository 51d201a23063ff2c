#include "engine/models/available_memory.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace ponder::models {
namespace {

using std::filesystem::path;
using Bytes = std::optional<std::uint64_t>;

/// The number a small system file holds; nothing for "max", and where it cannot be read.
Bytes number_in(const path& file) {
  std::ifstream in(file);
  std::uint64_t value = 0;
  return in >> value ? Bytes(value) : std::nullopt;
}

Bytes machine_memory(const path& root) {
  std::ifstream in(root / "proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (in >> key >> kib && std::getline(in, unit))
    if (key == "MemAvailable:") return kib << 10;
  return {};
}

Bytes group_memory(const path& group, const char* limit_file, const char* use_file) {
  constexpr std::uint64_t kNoLimit = 1ull << 60;  // version 1 has a huge number for "max"
  const Bytes limit = number_in(group / limit_file), use = number_in(group / use_file);
  if (!limit || !use || *limit >= kNoLimit) return {};
  std::ifstream in(group / "memory.stat");
  std::string key;
  std::uint64_t value = 0, cache = 0;
  while (in >> key >> value)
    if (key == "inactive_file" || key == "active_file") cache += value;
  const std::uint64_t taken = *use - std::min(*use, cache);
  return *limit - std::min(*limit, taken);
}

}  // namespace

Bytes available_memory(const path& root) {
  Bytes least;
  for (const Bytes bytes :
       {machine_memory(root), group_memory(root / "sys/fs/cgroup", "memory.max", "memory.current"),
        group_memory(root / "sys/fs/cgroup/memory", "memory.limit_in_bytes",
                     "memory.usage_in_bytes")})
    if (bytes && (!least || *bytes < *least)) least = bytes;
  return least;
}

}  // namespace ponder::models
