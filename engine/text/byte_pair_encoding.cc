#include "engine/text/byte_pair_encoding.h"

#include <algorithm>
#include <functional>
#include <limits>

#include "engine/base/check.h"

namespace ponder::text {
namespace {

using Position = std::uint32_t;
constexpr Position kNone = std::numeric_limits<Position>::max();

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) |
         static_cast<std::uint32_t>(right);
}

struct Symbol {
  std::int32_t id;  // -1: merged into the symbol to its left
  Position previous;
  Position next;
};

/// A pair that could be merged: its rank, then the position of its left side, so that the smallest
/// is merged next. Eight bytes, because long pieces are bound by the heap's memory traffic. It is
/// stale once the pair at that position has another rank.
using Candidate = std::uint64_t;
Candidate candidate(std::int32_t rank, Position left) {
  return (static_cast<std::uint64_t>(rank) << 32) | left;
}

}  // namespace

void BytePairEncoding::add_merge(std::int32_t left, std::int32_t right, std::int32_t merged) {
  merges_.try_emplace(pair_key(left, right), Merge{next_rank_++, merged});
}

const BytePairEncoding::Merge* BytePairEncoding::find(std::int32_t left, std::int32_t right) const {
  const auto it = merges_.find(pair_key(left, right));
  return it == merges_.end() ? nullptr : &it->second;
}

void BytePairEncoding::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  CHECK_MSG(piece.size() < kNone, "a piece of 4 GiB");
  std::vector<Symbol> symbols;
  symbols.reserve(piece.size());
  for (const char byte : piece) {
    const std::int32_t id = byte_ids_[static_cast<unsigned char>(byte)];
    const auto i = static_cast<Position>(symbols.size());
    if (id >= 0) symbols.push_back({id, i == 0 ? kNone : i - 1, i + 1});
  }
  if (symbols.empty()) return;
  symbols.back().next = kNone;
  const auto size = static_cast<Position>(symbols.size());

  const auto merge_at = [&](Position left) -> const Merge* {
    const Symbol& symbol = symbols[left];
    if (symbol.id < 0 || symbol.next == kNone) return nullptr;
    return find(symbol.id, symbols[symbol.next].id);
  };
  std::vector<Candidate> heap;
  for (Position i = 0; i < size; ++i)
    if (const Merge* merge = merge_at(i)) heap.push_back(candidate(merge->rank, i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto push_at = [&](Position left) {
    const Merge* merge = left == kNone ? nullptr : merge_at(left);
    if (!merge) return;
    heap.push_back(candidate(merge->rank, left));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<Position>(best);
    const Merge* merge = merge_at(at);
    if (!merge || candidate(merge->rank, at) != best) continue;
    Symbol& left = symbols[at];
    Symbol& right = symbols[left.next];
    left.id = merge->merged;
    right.id = -1;
    left.next = right.next;
    if (left.next != kNone) symbols[left.next].previous = at;
    push_at(left.previous);
    push_at(at);
  }
  for (Position i = 0; i != kNone && i < size; i = symbols[i].next)
    out.push_back(symbols[i].id);
}

}  // namespace ponder::text
