#include "jobs/waiting_jobs.h"

#include <algorithm>

#include "engine/base/check.h"
#include "jobs/verdict.h"

namespace ponder::jobs {
namespace {
/// Where `seq` stands, or would.
template <class Order>
auto place_of(Order& order, std::int64_t seq) {
  return std::lower_bound(order.begin(), order.end(), seq,
                          [](const auto& entry, std::int64_t s) { return entry.first < s; });
}
template <class Order>
std::size_t rank_of(const Order& order, std::int64_t seq) {
  return static_cast<std::size_t>(place_of(order, seq) - order.begin());
}

bool is_suspect(const JobRow& row) {
  return row.deaths > 0 || row.facts.contains(kRanOutOfMemory);
}
}  // namespace

WaitingJob& WaitingJobs::add(WaitingJob given) {
  const std::string id = given.row.id;
  const auto [found, is_new] = jobs_.emplace(id, std::move(given));
  CHECK(is_new);
  WaitingJob& job = found->second;
  const std::int64_t seq = job.row.seq;
  Order& order = job.row.lane == Lane::ask ? asks_ : batch_;
  order.insert(place_of(order, seq), {seq, &job});  // nearly always the last or the first one
  if (is_suspect(job.row)) suspects_.emplace(seq, &job);
  if (job.row.lane == Lane::batch) {
    young_.insert(seq);
    young_since_.emplace(job.since_ms, seq);
  }
  return job;
}

void WaitingJobs::remove(const std::string& id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  const WaitingJob& job = found->second;
  const std::int64_t seq = job.row.seq;
  Order& order = job.row.lane == Lane::ask ? asks_ : batch_;
  order.erase(place_of(order, seq));
  suspects_.erase({seq, &job});
  young_.erase(seq);
  young_since_.erase({job.since_ms, seq});
  jobs_.erase(found);
}

WaitingJob* WaitingJobs::find(const std::string& id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : &found->second;
}

/// How many batch jobs come before the first that is not of age: only these go before asks.
std::size_t WaitingJobs::aged_ahead(std::int64_t ageing_ms, std::int64_t now_ms) {
  if (ageing_ms > ageing_ms_) {  // some are young again
    for (const auto& [seq, job] : batch_) {
      young_.insert(seq);
      young_since_.emplace(job->since_ms, seq);
    }
  }
  ageing_ms_ = ageing_ms;
  while (!young_since_.empty() && now_ms - young_since_.begin()->first >= ageing_ms) {
    young_.erase(young_since_.begin()->second);
    young_since_.erase(young_since_.begin());
  }
  return young_.empty() ? batch_.size() : rank_of(batch_, *young_.begin());
}

std::int64_t WaitingJobs::position(const std::string& id,
                                   const std::vector<std::pair<std::int64_t, std::uint64_t>>& turns,
                                   std::int64_t ageing_ms, std::int64_t now_ms) {
  const WaitingJob* job = find(id);
  if (!job) return 1;
  const std::int64_t seq = job->row.seq;
  const std::pair<std::int64_t, std::uint64_t> order{seq, 0};
  const auto turns_before = static_cast<std::size_t>(
      std::count_if(turns.begin(), turns.end(), [&](const auto& turn) { return turn < order; }));
  const std::size_t asks_before = rank_of(asks_, seq) + turns_before;
  const std::size_t batch_before = rank_of(batch_, seq);
  const std::size_t aged = aged_ahead(ageing_ms, now_ms);
  std::size_t before = 0;
  if (job->row.lane == Lane::ask) {
    before = asks_before + std::min(aged, batch_before);
  } else if (batch_before < aged) {
    before = batch_before + asks_before;
  } else {
    before = batch_before + asks_.size() + turns.size();
  }
  return static_cast<std::int64_t>(before) + 1;
}

}  // namespace ponder::jobs
