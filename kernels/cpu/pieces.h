#pragma once
// Cutting an op into parts for the thread pool. A part is worth its hand-over (about a
// microsecond) from some ten thousand elements on; four parts for each thread keep a thread that
// was put aside from holding up the others.
#include <cstdint>

#include "kernels/core/stream.h"

namespace ponder::kernels {

template <class S>
struct Pieces {
  /// The number of parts for `items` items of `cost` elements each.
  static std::int64_t count(const Stream& stream, std::int64_t items, std::int64_t cost) {
    constexpr std::int64_t kWorthwhile = 16384;
    if (stream.pool == nullptr || items <= 1) return 1;
    std::int64_t parts = items * cost / kWorthwhile;
    const std::int64_t most = std::int64_t{4} * stream.pool->threads();
    if (parts > most) parts = most;
    if (parts > items) parts = items;
    return parts < 1 ? 1 : parts;
  }

  /// Calls body(first, last) on disjoint ranges that cover [0, items).
  template <class Body>
  static void for_ranges(const Stream& stream, std::int64_t items, std::int64_t cost,
                         const Body& body) {
    const std::int64_t parts = count(stream, items, cost);
    if (parts == 1) {
      body(std::int64_t{0}, items);
      return;
    }
    stream.pool->parallel_for(
        parts, [&](std::int64_t part) { body(items * part / parts, items * (part + 1) / parts); });
  }
};

}  // namespace ponder::kernels
