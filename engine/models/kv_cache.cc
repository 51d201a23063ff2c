#include "engine/models/kv_cache.h"

#include "engine/base/check.h"

namespace ponder::models {
namespace {
std::int64_t blocks_for(std::int64_t positions) {
  return (positions + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions;
}
}  // namespace

KvCache::KvCache(kernels::KvShape shape, std::int64_t layers, std::int64_t positions)
    : shape_(shape),
      layers_(layers),
      block_limit_(blocks_for(positions)),
      table_(static_cast<std::size_t>(layers * block_limit_)) {}

std::uint64_t KvCache::bytes(const kernels::KvShape& shape, std::int64_t layers,
                             std::int64_t positions) {
  return static_cast<std::uint64_t>(layers * blocks_for(positions)) *
         kernels::Arena::padded(kernels::kv_block_bytes(shape));
}

Result<void> KvCache::grow(std::int64_t positions) {
  const std::int64_t wanted = blocks_for(positions);
  CHECK(wanted <= block_limit_);
  if (arena_.size() == 0 && wanted > 0 && layers_ > 0) {
    TRY(arena_,
        kernels::Arena::make(bytes(shape_, layers_, block_limit_ * kernels::kKvBlockPositions)));
  }
  for (; block_count_ < wanted; ++block_count_)
    for (std::int64_t layer = 0; layer < layers_; ++layer)
      table_[static_cast<std::size_t>(layer * block_limit_ + block_count_)] =
          arena_.take(kernels::kv_block_bytes(shape_));
  return {};
}

std::span<std::byte* const> KvCache::blocks(std::int64_t layer) const {
  CHECK(layer >= 0 && layer < layers_);
  return {table_.data() + layer * block_limit_, static_cast<std::size_t>(block_count_)};
}
std::span<const std::byte* const> KvCache::const_blocks(std::int64_t layer) const {
  CHECK(layer >= 0 && layer < layers_);
  return {table_.data() + layer * block_limit_, static_cast<std::size_t>(block_count_)};
}

}  // namespace ponder::models
