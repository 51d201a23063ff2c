#pragma once
// Keys and values of one sequence: a table of blocks of 64 positions for each attention layer.
// The address space of the whole window is taken at the first use; pages become memory only when a
// position is written, in the order the sequence grows, so that a step never allocates. Belongs to
// one sequence; one thread at a time.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "kernels/core/arena.h"
#include "kernels/ops/attention.h"

namespace ponder::models {

class KvCache {
 public:
  KvCache(kernels::KvShape shape, std::int64_t layers, std::int64_t positions);

  /// Bytes when `positions` are written.
  static std::uint64_t bytes(const kernels::KvShape& shape, std::int64_t layers,
                             std::int64_t positions);

  /// Blocks for positions 0..positions-1. out_of_memory when the window cannot be reserved.
  Result<void> grow(std::int64_t positions);
  std::span<std::byte* const> blocks(std::int64_t layer) const;
  std::span<const std::byte* const> const_blocks(std::int64_t layer) const;
  const kernels::KvShape& shape() const { return shape_; }

 private:
  kernels::KvShape shape_;
  std::int64_t layers_;
  std::int64_t block_limit_;      ///< of a layer
  std::int64_t block_count_ = 0;  ///< of a layer, in use
  kernels::Arena arena_;
  std::vector<std::byte*> table_;  ///< [layers, block_limit]
};

}  // namespace ponder::models
