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

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

}  // namespace

ThreadPool::ThreadPool(int threads) {
  CHECK(threads >= 1 && threads <= 4096);
  workers_.reserve(static_cast<std::size_t>(threads - 1));
  for (int i = 1; i < threads; ++i)
    workers_.emplace_back([this] { work_loop(); });
}

ThreadPool::~ThreadPool() {
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
  CHECK(parts < (std::int64_t{1} << 31));
  const auto count = static_cast<std::uint32_t>(parts);
  function_.store(function, std::memory_order_relaxed);
  context_.store(context, std::memory_order_relaxed);
  parts_.store(count, std::memory_order_relaxed);
  done_.store(0, std::memory_order_relaxed);
  const std::uint64_t call = ((ticket_.load(std::memory_order_relaxed) >> 32) + 1) << 32;
  ticket_.store(call);  // seq_cst: ordered before the look at sleepers_
  if (sleepers_.load() != 0) {
    wake_.fetch_add(1);
    wake_.notify_all();
  }

  std::uint64_t ticket = call;
  std::uint32_t part = 0;
  while (claim(ticket, part)) {
    function(context, part);
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

/// Takes the next part of the call in progress, if there is one left. `ticket` is the caller's
/// last sight of ticket_.
bool ThreadPool::claim(std::uint64_t& ticket, std::uint32_t& part) {
  ticket = ticket_.load(std::memory_order_acquire);
  for (;;) {
    part = static_cast<std::uint32_t>(ticket);
    if (part >= parts_.load(std::memory_order_relaxed)) return false;
    if (ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel,
                                      std::memory_order_acquire))
      return true;
  }
}

void ThreadPool::work_loop() {
  std::uint64_t ticket = 0;
  int spin = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    ticket = ticket_.load(std::memory_order_acquire);
    const PartFunction function = function_.load(std::memory_order_relaxed);
    const void* context = context_.load(std::memory_order_relaxed);
    const std::uint32_t count = parts_.load(std::memory_order_relaxed);
    const auto part = static_cast<std::uint32_t>(ticket);
    if (part < count) {
      spin = 0;
      if (!ticket_.compare_exchange_weak(ticket, ticket + 1, std::memory_order_acq_rel)) continue;
      function(context, part);
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
