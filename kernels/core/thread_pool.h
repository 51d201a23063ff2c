#pragma once
// Threads for the inner loops of one model. parallel_for() hands out numbered parts one at a time
// to whoever is free (the caller takes parts too), so a thread that the machine has put aside
// delays only the one part it holds. Between calls a worker spins for some microseconds and then
// sleeps. Which thread runs a part is not determined, so a part's result may depend on its number
// only. One caller at a time; calls do not nest.
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace ponder::kernels {

class ThreadPool {
 public:
  /// `threads` in all, counting the caller (at least 1). Throws std::system_error when the system
  /// refuses one.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Calls body(part) once for each part in [0, parts) and returns when all have returned.
  /// `body` must not throw. At most 65,535 parts. Allocates nothing.
  template <class Body>
  void parallel_for(std::int64_t parts, const Body& body) {
    run(
        parts, [](const void* b, std::int64_t part) { (*static_cast<const Body*>(b))(part); },
        &body);
  }

  using PartFunction = void (*)(const void* context, std::int64_t part);
  void run(std::int64_t parts, PartFunction function, const void* context);

 private:
  bool claim(std::uint64_t& ticket);
  void work_loop();
  void end_workers();

  // The call in progress: its number << 32 | its parts << 16 | the next part to take. A claim is a
  // compare-and-swap to the next part. That it succeeded proves that function_ and context_, read
  // before it, belong to that call: they change only after all parts of a call are done.
  alignas(64) std::atomic<std::uint64_t> ticket_{0};
  std::atomic<PartFunction> function_{nullptr};
  std::atomic<const void*> context_{nullptr};
  alignas(64) std::atomic<std::uint32_t> done_{0};
  std::atomic<bool> caller_sleeps_{false};
  alignas(64) std::atomic<std::uint32_t> wake_{0};
  std::atomic<std::uint32_t> sleepers_{0};
  std::atomic<bool> stop_{false};
  const int threads_;
  std::vector<std::thread> workers_;
};

}  // namespace ponder::kernels
