#include "engine/models/kv_pages.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "engine/base/check.h"
#include "kernels/core/arena.h"

namespace ponder::models {
namespace {
constexpr std::size_t kMachinePage = 4096;
}

std::size_t KvLayout::offset(std::int64_t layer) const {
  const std::int64_t mains = std::min(layer, main_layers), drafts = layer - mains;
  std::size_t at = 0;
  if (mains > 0)
    at += static_cast<std::size_t>(mains) * kernels::Arena::padded(kernels::kv_block_bytes(main));
  if (drafts > 0)
    at += static_cast<std::size_t>(drafts) * kernels::Arena::padded(kernels::kv_block_bytes(draft));
  return at;
}

std::size_t KvLayout::page_bytes() const {
  return (offset(layers()) + kMachinePage - 1) / kMachinePage * kMachinePage;
}

Result<std::shared_ptr<KvPage>> KvPage::make(std::size_t bytes) {
  // Mapped on its own, so that a page that is let go of goes back to the system.
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED)
    return fail(ErrorCode::out_of_memory,
                fmt::format("The system refused {} KiB for the context.", bytes >> 10),
                "Close other programs, or use a smaller --ctx.");
  return std::make_shared<KvPage>(std::span(static_cast<std::byte*>(memory), bytes));
}

KvPage::~KvPage() {
  munmap(memory.data(), memory.size());
}

Result<std::shared_ptr<const KvPage>> twin_of(const std::shared_ptr<const KvPage>& page) {
  if (auto twin = page->twin.lock(); twin && twin->twin.lock() == page) return twin;
  TRY(std::shared_ptr<KvPage> copy, KvPage::make(page->memory.size()));
  std::memcpy(copy->memory.data(), page->memory.data(), page->memory.size());
  copy->twin = page;
  page->twin = copy;
  return std::shared_ptr<const KvPage>(std::move(copy));
}

KvTable::KvTable(const KvLayout& layout, std::int64_t positions)
    : layout_(layout),
      page_limit_(layout.layers() == 0 ? 0 : pages_for(positions)),
      table_(static_cast<std::size_t>(layout.layers() * page_limit_)) {
  pages_.reserve(static_cast<std::size_t>(page_limit_));
}

void KvTable::bind(std::size_t page) {
  for (std::int64_t layer = 0; layer < layout_.layers(); ++layer)
    table_[static_cast<std::size_t>(layer * page_limit_) + page] =
        pages_[page]->memory.data() + layout_.offset(layer);
}

Result<void> KvTable::make_writable(std::int64_t first, std::int64_t last) {
  if (page_limit_ == 0 || first >= last) return {};
  const auto begin = static_cast<std::size_t>(first / kernels::kKvBlockPositions);
  const auto end = static_cast<std::size_t>(pages_for(last));
  CHECK(begin <= pages_.size() && end <= static_cast<std::size_t>(page_limit_));
  for (std::size_t i = begin; i < end; ++i) {
    if (i < pages_.size() && pages_[i].use_count() == 1) {
      // Another thread may just have let go of it: its reads come before the writes that follow.
      std::atomic_thread_fence(std::memory_order_acquire);
      pages_[i]->twin.reset();
      continue;
    }
    TRY(std::shared_ptr<KvPage> page, KvPage::make(layout_.page_bytes()));
    if (i < pages_.size()) {
      std::memcpy(page->memory.data(), pages_[i]->memory.data(), page->memory.size());
      pages_[i] = std::move(page);
    } else {
      pages_.push_back(std::move(page));
    }
    bind(i);
  }
  return {};
}

KvPageList KvTable::share(std::int64_t positions) const {
  if (page_limit_ == 0) return {};
  const auto count = static_cast<std::size_t>(pages_for(positions));
  CHECK(count <= pages_.size());
  return {pages_.begin(), pages_.begin() + static_cast<std::ptrdiff_t>(count)};
}

void KvTable::adopt(const KvPageList& pages) {
  CHECK(pages.size() <= static_cast<std::size_t>(page_limit_));
  pages_.clear();
  for (const auto& page : pages) {
    // Pages are const for those who share them; make_writable() copies before the first write.
    pages_.push_back(std::const_pointer_cast<KvPage>(page));
    bind(pages_.size() - 1);
  }
}

std::span<std::byte* const> KvTable::blocks(std::int64_t layer) const {
  CHECK(layer >= 0 && layer < layout_.layers());
  return {table_.data() + layer * page_limit_, pages_.size()};
}
std::span<const std::byte* const> KvTable::const_blocks(std::int64_t layer) const {
  CHECK(layer >= 0 && layer < layout_.layers());
  return {table_.data() + layer * page_limit_, pages_.size()};
}

}  // namespace ponder::models
