#pragma once
// Where an op runs. On the CPU: the thread pool that shares its work (null: the caller alone).
// An op has finished when its call returns.
#include "kernels/core/thread_pool.h"

namespace ponder::kernels {

struct Stream {
  ThreadPool* pool = nullptr;  ///< not owned

  int threads() const { return pool == nullptr ? 1 : pool->threads(); }
  template <class Body>
  void parallel_for(std::int64_t parts, const Body& body) const {
    if (pool != nullptr) {
      pool->parallel_for(parts, body);
    } else {
      for (std::int64_t part = 0; part < parts; ++part)
        body(part);
    }
  }
};

}  // namespace ponder::kernels
