#include "kernels/core/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

namespace ponder::kernels {
namespace {

TEST(ThreadPool, RunsEveryPartExactlyOnce) {
  for (const int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (const std::int64_t parts : {0, 1, 2, 7, 100}) {
      for (int repeat = 0; repeat < 50; ++repeat) {
        std::vector<std::atomic<int>> runs(static_cast<std::size_t>(parts) + 1);
        pool.parallel_for(parts, [&](std::int64_t part) {
          runs[static_cast<std::size_t>(part)].fetch_add(1, std::memory_order_relaxed);
        });
        for (std::int64_t part = 0; part < parts; ++part)
          ASSERT_EQ(runs[static_cast<std::size_t>(part)].load(), 1);
      }
    }
  }
}

TEST(ThreadPool, WritesOfAPartAreSeenByTheCallerAndByTheNextCall) {
  ThreadPool pool(3);
  std::vector<std::int64_t> values(64, 0);
  for (int step = 0; step < 2000; ++step)
    pool.parallel_for(64, [&](std::int64_t part) { ++values[static_cast<std::size_t>(part)]; });
  for (const std::int64_t value : values)
    EXPECT_EQ(value, 2000);
}

TEST(ThreadPool, APartThatWaitsHoldsUpNoOtherPart) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::condition_variable changed;
  int others = 0;
  pool.parallel_for(16, [&](std::int64_t part) {
    std::unique_lock lock(mutex);
    if (part == 0) {
      changed.wait(lock, [&] { return others == 15; });
    } else {
      ++others;
      changed.notify_all();
    }
  });
  EXPECT_EQ(others, 15);
}

TEST(ThreadPool, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(2);
  // Two parts that each wait for the other can only end when two threads run them.
  for (int round = 0; round < 20; ++round) {
    std::this_thread::yield();
    std::atomic<int> arrived{0};
    pool.parallel_for(2, [&](std::int64_t) {
      arrived.fetch_add(1);
      while (arrived.load() < 2)
        std::this_thread::yield();
    });
    EXPECT_EQ(arrived.load(), 2);
    if (round % 4 == 0) {
      // Long enough that the worker's spinning is over.
      std::mutex mutex;
      std::condition_variable never;
      std::unique_lock lock(mutex);
      never.wait_for(lock, std::chrono::milliseconds(3));
    }
  }
}

TEST(ThreadPool, ComesAndGoesWithoutWork) {
  for (int i = 0; i < 20; ++i)
    ThreadPool pool(4);
}

}  // namespace
}  // namespace ponder::kernels
