#include "engine/worker/read_bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

namespace ponder::worker {
namespace {

using Clock = std::chrono::steady_clock;
// The widest load that every x86-64 has; two of them a cycle outrun any memory.
typedef std::uint64_t Wide __attribute__((vector_size(16)));
constexpr std::size_t kStep = 8;  // independent sums, so that no addition waits for another

std::uint64_t sum(const Wide* data, std::size_t n) {
  Wide sums[kStep] = {};
  for (std::size_t i = 0; i + kStep <= n; i += kStep)
    for (std::size_t k = 0; k < kStep; ++k)
      sums[k] += data[i + k];
  std::uint64_t total = 0;
  for (const Wide& s : sums)
    total += s[0] + s[1];
  return total;
}

}  // namespace

double measure_read_gb_per_s(std::uint64_t bytes, int threads) {
  constexpr int kPasses = 7;
  const auto count = static_cast<std::size_t>(std::max(1, threads));
  const std::size_t slice =
      std::max<std::size_t>(kStep, bytes / sizeof(Wide) / count / kStep * kStep);
  const std::unique_ptr<Wide[]> buffer(new Wide[slice * count]);
  std::memset(static_cast<void*>(buffer.get()), 1, slice * count * sizeof(Wide));

  std::atomic<std::uint64_t> keep{0};  // so that no pass can be left out
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    std::atomic<std::size_t> waiting{count};
    std::vector<Clock::time_point> began(count), ended(count);
    std::vector<std::thread> readers;
    for (std::size_t t = 0; t < count; ++t) {
      readers.emplace_back([&, t] {
        --waiting;
        while (waiting != 0)
          std::this_thread::yield();  // all at once
        began[t] = Clock::now();
        keep += sum(buffer.get() + t * slice, slice);
        ended[t] = Clock::now();
      });
    }
    for (std::thread& reader : readers)
      reader.join();
    const double s = std::chrono::duration<double>(*std::max_element(ended.begin(), ended.end()) -
                                                   *std::min_element(began.begin(), began.end()))
                         .count();
    if (s > 0) best = std::max(best, static_cast<double>(slice * count * sizeof(Wide)) / s / 1e9);
  }
  return best;
}

}  // namespace ponder::worker
