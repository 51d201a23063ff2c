// What a load may use: the window, the threads and the memory of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#include "engine/models/registry.h"

namespace ponder::models {
namespace {

constexpr std::int64_t kDefaultContext = 32768;
constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

/// The number a small system file holds, or kUnknown ("max", absent, unreadable).
std::uint64_t number_in(const char* path) {
  std::ifstream in(path);
  std::uint64_t value = kUnknown;
  return in >> value ? value : kUnknown;
}

std::uint64_t machine_memory() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  std::uint64_t kib = 0;
  while (in >> key >> kib) {
    std::getline(in, unit);
    if (key == "MemAvailable:") return kib << 10;
  }
  return kUnknown;
}

/// What a control group may still take: its use counts page cache, which the kernel gives back.
std::uint64_t group_memory(const char* limit_file, const char* use_file, const char* stat_file) {
  const std::uint64_t limit = number_in(limit_file), use = number_in(use_file);
  if (limit == kUnknown || use == kUnknown || limit >= (1ull << 60)) return kUnknown;
  std::ifstream in(stat_file);
  std::string key;
  std::uint64_t value = 0, cache = 0;
  while (in >> key >> value)
    if (key == "inactive_file" || key == "active_file") cache += value;
  const std::uint64_t taken = use - std::min(use, cache);
  return limit - std::min(limit, taken);
}

}  // namespace

Result<LoadOptions> resolve(const LoadOptions& options, std::int64_t n_ctx_train) {
  LoadOptions out = options;
  if (out.n_ctx < 0 || out.threads < 0 || out.chunk < 1 || out.chunk > 32768 || out.threads > 1024)
    return fail(ErrorCode::bad_request,
                "The context, thread and chunk numbers must be positive; chunk is at most "
                "32,768 and threads at most 1,024.");
  if (out.n_ctx > n_ctx_train)
    return fail(
        ErrorCode::bad_request,
        fmt::format("A context of {} tokens is longer than the {} this model was trained for.",
                    out.n_ctx, n_ctx_train),
        fmt::format("Use --ctx {} or less.", n_ctx_train));
  if (out.n_ctx == 0) out.n_ctx = std::min(n_ctx_train, kDefaultContext);
  if (out.threads == 0)
    out.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  out.chunk = std::min(out.chunk, out.n_ctx);
  return out;
}

std::uint64_t arena_bytes(std::uint64_t bytes) {
  constexpr std::uint64_t kHugePage = 2u << 20;
  const std::uint64_t page = bytes >= kHugePage ? kHugePage : 4096;
  return (bytes + page - 1) / page * page;
}

std::uint64_t available_memory() {
  return std::min({machine_memory(),
                   group_memory("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current",
                                "/sys/fs/cgroup/memory.stat"),
                   group_memory("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                                "/sys/fs/cgroup/memory/memory.stat")});
}

Result<void> check_memory(const MemoryNeed& need) {
  const std::uint64_t available = available_memory();
  if (need.total <= available) return {};
  return fail(
      ErrorCode::out_of_memory,
      fmt::format(
          "The model needs {} MiB ({} for weights, {} for the context), but only {} MiB are free.",
          need.total >> 20, need.weights >> 20, (need.kv + need.state) >> 20, available >> 20),
      "Use a smaller --ctx or a smaller file, or close other programs.");
}

}  // namespace ponder::models
