#include "jobs/scheduler.h"

#include <algorithm>
#include <numeric>

namespace ponder::jobs {

std::vector<std::size_t> order_of_start(const std::vector<Waiting>& waiting, const Limits& limits,
                                        std::int64_t now_ms) {
  const auto aged = [&](const Waiting& w) {
    return w.lane == Lane::batch && now_ms - w.since_ms >= limits.ageing_ms;
  };
  std::vector<std::size_t> asks;
  std::vector<std::size_t> batch;
  for (std::size_t i = 0; i < waiting.size(); ++i)
    (waiting[i].lane == Lane::ask ? asks : batch).push_back(i);
  const auto earlier = [&](std::size_t a, std::size_t b) {
    return waiting[a].order < waiting[b].order;
  };
  std::sort(asks.begin(), asks.end(), earlier);
  std::sort(batch.begin(), batch.end(), earlier);
  // Merged without touching the order inside a lane: an aged batch job goes before the asks that
  // came after it, any other after all asks.
  std::vector<std::size_t> order;
  order.reserve(waiting.size());
  std::size_t ask = 0;
  for (const std::size_t job : batch) {
    while (ask < asks.size() &&
           (!aged(waiting[job]) || waiting[asks[ask]].order < waiting[job].order))
      order.push_back(asks[ask++]);
    order.push_back(job);
  }
  order.insert(order.end(), asks.begin() + static_cast<std::ptrdiff_t>(ask), asks.end());
  return order;
}

Picks pick(const std::vector<Waiting>& waiting, RunningCounts running, const Limits& limits,
           std::int64_t now_ms, Room room) {
  Picks picks;
  bool no_batch = false;  // an ask that goes before finds no place, or a batch job no memory
  for (const std::size_t i : order_of_start(waiting, limits, now_ms)) {
    const bool is_ask = waiting[i].lane == Lane::ask;
    int& taken = is_ask ? running.interactive : running.batch;
    if (taken >= (is_ask ? limits.interactive : limits.batch) || (!is_ask && no_batch)) {
      no_batch = no_batch || is_ask;
      continue;
    }
    const bool alone = room.idle && picks.start.empty();
    if (waiting[i].bytes > room.free && !alone) {
      picks.no_memory.push_back(i);
      if (is_ask || waiting[i].bytes <= room.beside_batch) break;
      no_batch = true;
      continue;
    }
    ++taken;
    room.free -= std::min(room.free, waiting[i].bytes);
    picks.start.push_back(i);
  }
  return picks;
}

}  // namespace ponder::jobs
