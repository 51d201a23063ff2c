// The order of the waiting jobs against the slow one of jobs/scheduler.h.
#include "jobs/waiting_jobs.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <tuple>

#include "jobs/verdict.h"

namespace ponder::jobs {
namespace {

WaitingJob job(std::int64_t seq, Lane lane, std::int64_t since_ms = 0) {
  WaitingJob out;
  out.row.seq = seq;
  out.row.id = fmt::format("{:026}", seq);
  out.row.lane = lane;
  out.since_ms = since_ms;
  return out;
}
std::string id_of(std::int64_t seq) {
  return fmt::format("{:026}", seq);
}
bool any(const WaitingJob&) {
  return true;
}

using Turns = std::vector<std::pair<std::int64_t, std::uint64_t>>;

/// Id -> place, by sorting them all; turns have an empty one.
std::map<std::string, std::int64_t> places(const std::map<std::int64_t, WaitingJob>& jobs,
                                           const Turns& turns, const Limits& limits,
                                           std::int64_t now_ms) {
  std::vector<Waiting> waiting;
  std::vector<std::string> ids;
  for (const auto& [seq, waits] : jobs) {
    waiting.push_back({waits.row.lane, {seq, 0}, waits.since_ms, waits.bytes});
    ids.push_back(waits.row.id);
  }
  for (const auto& turn : turns) {
    waiting.push_back({Lane::ask, turn, 0});
    ids.emplace_back();
  }
  std::map<std::string, std::int64_t> out;
  std::int64_t place = 0;
  for (const std::size_t i : order_of_start(waiting, limits, now_ms))
    out[ids[i]] = ++place;
  return out;
}

TEST(WaitingJobs, PlacesAreThoseOfTheWholeOrder) {
  std::mt19937_64 random(7);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 200; ++round) {
    WaitingJobs waiting;
    std::map<std::int64_t, WaitingJob> all;
    Turns turns;
    std::int64_t now_ms = 10'000;
    for (int step = 0; step < 40; ++step) {
      now_ms += below(300);
      const std::int64_t seq = 1 + below(60);
      if (all.count(seq) != 0) {
        waiting.remove(id_of(seq));
        all.erase(seq);
      } else {
        // Mostly the older came earlier; one that has yielded waits anew.
        WaitingJob made = job(seq, below(3) == 0 ? Lane::ask : Lane::batch,
                              below(5) == 0 ? now_ms : 9'000 + seq * 20);
        all.emplace(seq, made);
        waiting.add(std::move(made));
      }
      if (below(4) == 0) turns.emplace_back(1 + below(60), 1 + static_cast<std::uint64_t>(step));
      if (below(4) == 0 && !turns.empty()) turns.pop_back();
      const Limits limits{2, 1, 500 + 1000 * below(3)};  // also one that is changed
      const auto wanted = places(all, turns, limits, now_ms);
      for (const auto& [seq_of, waits] : all)
        ASSERT_EQ(waiting.position(waits.row.id, turns, limits.ageing_ms, now_ms),
                  wanted.at(waits.row.id))
            << "round " << round << " step " << step << " job " << seq_of;
      ASSERT_EQ(waiting.size(), all.size());
      ASSERT_EQ(waiting.size(Lane::ask) + waiting.size(Lane::batch), all.size());
    }
  }
}

// The queue gives pick() only the first of each lane: one more than there are places.
TEST(WaitingJobs, TheFirstOfEachLaneDecideWhatIsPicked) {
  std::mt19937_64 random(11);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  int started = 0, held_up = 0;
  for (int round = 0; round < 20'000; ++round) {
    WaitingJobs all;
    std::vector<Waiting> whole, heads;
    const std::int64_t count = below(12);
    for (std::int64_t seq = 1; seq <= count; ++seq) {
      WaitingJob made = job(seq, below(2) == 0 ? Lane::ask : Lane::batch, below(1000));
      made.bytes = static_cast<std::uint64_t>(below(60));
      whole.push_back({made.row.lane, {seq, 0}, made.since_ms, made.bytes});
      all.add(std::move(made));
    }
    const Limits limits{1 + static_cast<int>(below(3)), 1 + static_cast<int>(below(3)), 500};
    const RunningCounts running{static_cast<int>(below(4)), static_cast<int>(below(4))};
    const bool idle = running.interactive + running.batch == 0;
    const Room room{static_cast<std::uint64_t>(below(120)), static_cast<std::uint64_t>(below(120)),
                    idle};
    for (const auto& [lane, limit, taken] :
         {std::tuple{Lane::ask, limits.interactive, running.interactive},
          std::tuple{Lane::batch, limits.batch, running.batch}})
      for (const WaitingJob* first :
           all.first(lane, static_cast<std::size_t>(std::max(0, limit - taken)) + 1, any))
        heads.push_back({lane, {first->row.seq, 0}, first->since_ms, first->bytes});
    const auto numbers = [](const std::vector<Waiting>& of,
                            const std::vector<std::size_t>& picked) {
      std::vector<std::int64_t> out;
      for (const std::size_t i : picked)
        out.push_back(of[i].order.first);
      return out;
    };
    const Picks of_all = pick(whole, running, limits, 1000, room);
    const Picks of_heads = pick(heads, running, limits, 1000, room);
    ASSERT_EQ(numbers(heads, of_heads.start), numbers(whole, of_all.start)) << "round " << round;
    ASSERT_EQ(numbers(heads, of_heads.no_memory), numbers(whole, of_all.no_memory)) << round;
    started += static_cast<int>(of_all.start.size());
    held_up += static_cast<int>(of_all.no_memory.size());
  }
  EXPECT_GT(started, 1000);
  EXPECT_GT(held_up, 1000);
}

TEST(WaitingJobs, ThoseThatMayNotAreLeftOutAndSuspectsAreKnown) {
  WaitingJobs waiting;
  for (std::int64_t seq = 1; seq <= 4; ++seq) {
    WaitingJob made = job(seq, Lane::batch);
    if (seq == 2) made.row.deaths = 1;
    if (seq == 3) made.row.facts[kRanOutOfMemory] = true;
    waiting.add(std::move(made));
  }
  ASSERT_EQ(waiting.suspects().size(), 2u);
  EXPECT_EQ(waiting.suspects().begin()->first, 2);
  const auto sound =
      waiting.first(Lane::batch, 2, [](const WaitingJob& j) { return j.row.seq != 2; });
  ASSERT_EQ(sound.size(), 2u);
  EXPECT_EQ(sound[1]->row.seq, 3);
  waiting.remove(id_of(2));
  waiting.remove(id_of(9));
  EXPECT_EQ(waiting.suspects().size(), 1u);
  EXPECT_EQ(waiting.position(id_of(2), {}, 1000, 0), 1);  // it does not wait
  EXPECT_EQ(waiting.find(id_of(2)), nullptr);
}

TEST(WaitingJobs, AHundredThousandCostNoMoreThanAFew) {
  constexpr std::int64_t kMany = 100'000;
  WaitingJobs waiting;
  for (std::int64_t seq = 1; seq <= kMany; ++seq)
    waiting.add(job(seq, Lane::batch, seq));
  // One comes, is told its place, and the first goes. Sorting them all took 20 ms with 6,000.
  const std::clock_t began = std::clock();
  for (std::int64_t i = 0; i < 1000; ++i) {
    const std::int64_t seq = kMany + 1 + i;
    waiting.add(job(seq, Lane::batch, seq));
    ASSERT_EQ(waiting.position(id_of(seq), {}, 300'000, seq), kMany + 1);
    ASSERT_EQ(waiting.first(Lane::batch, 2, any).front()->row.seq, 1 + i);
    waiting.remove(id_of(1 + i));
  }
  EXPECT_LT(static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC, 2.0);
}

}  // namespace
}  // namespace ponder::jobs
