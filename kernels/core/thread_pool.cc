#include "kernels/core/thread_pool.h"

#include "engine/base/check.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace ponder::kernels {
namespace {

// About 40 us of spinning on a 3.6 GHz Zen 4 (a pause is some 20 ns there): longer than the serial
// stretches between two matrix products of a decode step, far shorter than a scheduler slice.
constexpr int kSpins = 2000;

constexpr std::uint32_t next_part(std::uint64_t ticket) {
  return static_cast<std::uint32_t>(ticket & 0xffffu);
}
constexpr std::uint32_t part_count(std::uint64_t ticket) {
  return static_cast<std::uint32_t>((ticket >> 16) & 0xffffu);
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads) {
  CHECK(threads >= 1 && threads <= 4096);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  try {
    for (int i = 1; i < threads; ++i)
      workers_.emplace_back([this] { work_loop(); });
  } catch (...) {
    end_workers();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  end_workers();
}

void ThreadPool::end_workers() {
  stop_.store(true);
  wake_.fetch_add(1);
  wake_.notify_all();
  for (std::thread& worker : workers_)
    worker.join();
}

void ThreadPool::run(std::int64_t parts, PartFunction function, const void* context) {
  if (parts <= 1 || workers_.empty()) {
    for (std::int64_t part = 0; part < parts; ++part)
      function(context, part);
    return;
  }
  CHECK(parts <= 0xffff);
  const auto count = static_cast<std::uint32_t>(parts);
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t call = (ticket_.load(std::memory_order_relaxed) >> 32) + 1;
  ticket_.store(call << 32 | parts << 16);  // seq_cst: ordered before the look at sleepers_
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }

  std::uint64_t ticket = 0;
  while (claim(ticket)) {
    function(context, next_part(ticket));
    done_.fetch_add(1, std::memory_order_acq_rel);
  }
  for (int spin = 0; done_.load(std::memory_order_acquire) != count; ++spin) {
    if (spin < kSpins) {
      pause();
      continue;
    }
    caller_sleeps_.store(true);
    const std::uint32_t seen = done_.load();
    if (seen != count) done_.wait(seen);
    caller_sleeps_.store(false, std::memory_order_relaxed);
  }
}

/// Takes the next part of the call in progress, if there is one left; `ticket` names it.
bool ThreadPool::claim(std::uint64_t& ticket) {
  ticket = ticket_.load(std::memory_order_acquire);
  while (next_part(ticket) < part_count(ticket))
    if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      return true;
  return false;
}

void ThreadPool::work_loop() {
  int spin = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    std::uint64_t ticket = ticket_.load(std::memory_order_acquire);
    const PartFunction function = function_.load(std::memory_order_relaxed);
    const void* context = context_.load(std::memory_order_relaxed);
    if (next_part(ticket) < part_count(ticket)) {
      spin = 0;
      if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
      function(context, next_part(ticket));
      done_.fetch_add(1);
      if (caller_sleeps_.load()) done_.notify_one();
      continue;
    }
    if (++spin < kSpins) {
      pause();
      continue;
    }
    // Announce the sleep, then look once more: either this sees the new ticket, or the caller
    // sees the sleeper.
    const std::uint32_t wake = wake_.load();
    sleepers_.fetch_add(1);
    if (ticket_.load() == ticket && !stop_.load()) wake_.wait(wake);
    sleepers_.fetch_sub(1);
    spin = 0;
  }
}

}  // namespace ponder::kernels
