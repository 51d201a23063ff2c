// What a load may use: the window, the threads and the memory of this machine.
#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "engine/models/available_memory.h"
#include "engine/models/registry.h"

namespace ponder::models {
namespace {

constexpr std::int64_t kDefaultContext = 32768;

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

Result<void> check_memory(const MemoryNeed& need) {
  const std::uint64_t available = available_memory().value_or(need.total);
  if (need.total <= available) return {};
  return fail(
      ErrorCode::out_of_memory,
      fmt::format(
          "The model needs {} MiB ({} for weights, {} for the context), but only {} MiB are free.",
          need.total >> 20, need.weights >> 20, (need.kv + need.state) >> 20, available >> 20),
      "Use a smaller --ctx or a smaller file, or close other programs.");
}

}  // namespace ponder::models
