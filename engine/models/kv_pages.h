#pragma once
// Keys and values of one sequence: pages of 64 positions, allocated as the sequence grows and
// shared by count between sequences and snapshots. A page holds one kernel block for each
// attention layer and, where the model drafts, one for the draft layer. Whoever writes a position
// calls make_writable() first, which copies what is shared.
//
// Allocating, copying and writing happen on the thread that computes; a page may be let go of from
// any thread.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "engine/models/model.h"
#include "kernels/ops/attention.h"

namespace ponder::models {

/// How a page is divided.
struct KvLayout {
  kernels::KvShape main;
  std::int64_t main_layers = 0;
  kernels::KvShape draft;  ///< exact or half precision: the guesses suffer from less
  std::int64_t draft_layers = 0;

  std::int64_t layers() const { return main_layers + draft_layers; }
  const kernels::KvShape& shape(std::int64_t layer) const {
    return layer < main_layers ? main : draft;
  }
  std::size_t offset(std::int64_t layer) const;  ///< of a layer's block in a page
  std::size_t page_bytes() const;                ///< what a page takes from the machine
};

struct KvPage {
  /// out_of_memory when the system refuses.
  static Result<std::shared_ptr<KvPage>> make(std::size_t bytes);
  explicit KvPage(std::span<std::byte> held) : memory(held) {}
  ~KvPage();
  KvPage(const KvPage&) = delete;
  KvPage& operator=(const KvPage&) = delete;

  std::span<std::byte> memory;
  /// The same contents in the other memory (host or device), for as long as both say so: writing
  /// into a page forgets its twin.
  mutable std::weak_ptr<const KvPage> twin;
};

using KvPageList = std::vector<std::shared_ptr<const KvPage>>;

inline std::int64_t pages_for(std::int64_t positions) {
  return (positions + kernels::kKvBlockPositions - 1) / kernels::kKvBlockPositions;
}

/// The copy of `page` in the other memory: the one that is there, or a new one.
Result<std::shared_ptr<const KvPage>> twin_of(const std::shared_ptr<const KvPage>& page);

class KvTable {
 public:
  KvTable(const KvLayout& layout, std::int64_t positions);

  /// Pages of positions [first, last) that no one else holds; those before must be there. After an
  /// error the contents of all positions are what they were.
  Result<void> make_writable(std::int64_t first, std::int64_t last);
  void clear() { truncate(0); }
  /// The pages of positions 0..positions-1, shared from now on.
  KvPageList share(std::int64_t positions) const;
  /// Takes the place of all that was held.
  void adopt(const KvPageList& pages);

  const KvLayout& layout() const { return layout_; }
  std::span<std::byte* const> blocks(std::int64_t layer) const;
  std::span<const std::byte* const> const_blocks(std::int64_t layer) const;

 private:
  void truncate(std::size_t pages) { pages_.resize(pages); }
  void bind(std::size_t page);

  KvLayout layout_;
  std::int64_t page_limit_;
  std::vector<std::shared_ptr<KvPage>> pages_;
  std::vector<std::byte*> table_;  ///< [layers, page_limit]
};

}  // namespace ponder::models
