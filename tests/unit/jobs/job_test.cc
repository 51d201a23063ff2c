#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "jobs/job.h"
#include "jobs/job_text.h"
#include "jobs/scheduler.h"

namespace ponder::jobs {
namespace {

const State kAll[] = {State::queued, State::running,   State::completed,   State::incomplete,
                      State::failed, State::cancelled, State::interrupted, State::expired};

TEST(Job, EveryStateAndReasonHasAWordAndBack) {
  for (const State s : kAll)
    EXPECT_EQ(state_from(to_string(s)), s);
  std::set<std::string_view> words;
  for (int r = 0; r < static_cast<int>(Reason::count_); ++r) {
    EXPECT_EQ(reason_from(to_string(static_cast<Reason>(r))), static_cast<Reason>(r));
    words.insert(to_string(static_cast<Reason>(r)));
  }
  EXPECT_EQ(words.size(), static_cast<std::size_t>(Reason::count_));
  EXPECT_FALSE(state_from("done"));
  EXPECT_FALSE(reason_from("tired"));
}

TEST(Job, TerminalStatesLeadOnlyToExpired) {
  for (const State from : kAll)
    for (const State to : kAll)
      if (is_terminal(from)) {
        EXPECT_EQ(is_legal(from, to), to == State::expired && from != State::expired)
            << to_string(from) << " -> " << to_string(to);
      }
  EXPECT_TRUE(is_legal(State::running, State::queued));
  EXPECT_FALSE(is_legal(State::queued, State::completed));
  EXPECT_FALSE(is_legal(State::queued, State::interrupted));
}

TEST(Job, AReasonExplainsOneState) {
  for (int r = 0; r < static_cast<int>(Reason::count_); ++r) {
    const auto reason = static_cast<Reason>(r);
    for (const State s : kAll) {
      const bool explained = s == State::incomplete || s == State::failed;
      EXPECT_EQ(is_legal(s, reason),
                s == State::expired || (explained ? state_of(reason) == s : reason == Reason::none))
          << to_string(s) << " " << to_string(reason);
    }
  }
  EXPECT_EQ(state_of(Reason::poison), State::failed);
  EXPECT_EQ(state_of(Reason::deadline), State::incomplete);
  EXPECT_EQ(state_of(Reason::none), std::nullopt);
}

TEST(Job, TheDocumentDrawsTheTableAsItIs) {
  std::ifstream file(PONDER_SOURCE_DIR "/docs/data.md");
  std::set<std::pair<State, State>> drawn;
  for (std::string line; std::getline(file, line);) {
    const std::size_t middle = line.find(" | ", 2);
    if (!line.starts_with("| ") || middle == std::string::npos) continue;
    const auto from = state_from(line.substr(2, middle - 2));
    const auto to = state_from(line.substr(middle + 3, line.size() - middle - 5));
    if (from && to) drawn.insert({*from, *to});
  }
  for (const State from : kAll)
    for (const State to : kAll)
      EXPECT_EQ(drawn.count({from, to}) != 0, is_legal(from, to))
          << to_string(from) << " -> " << to_string(to);
}

TEST(JobText, ChannelsAreKeptApartAndInOrder) {
  JobText text;
  text.append(Channel::reasoning, "ab");
  text.append(Channel::reasoning, "c");
  text.append(Channel::answer, "dé");
  text.append(Channel::reasoning, "f");
  EXPECT_EQ(text.of(Channel::reasoning), "abcf");
  EXPECT_EQ(text.of(Channel::answer), "dé");
  EXPECT_EQ(text.chars(Channel::answer), 2);
  EXPECT_EQ(text.size(), 7);
  std::string seen;
  text.pieces(1, 7, [&](Channel c, std::string_view piece, std::int64_t end) {
    seen +=
        (c == Channel::answer ? "A:" : "R:") + std::string(piece) + "@" + std::to_string(end) + " ";
  });
  EXPECT_EQ(seen, "R:bc@3 A:dé@6 R:f@7 ");
  text.truncate(5);  // inside é: the whole character goes
  EXPECT_EQ(text.of(Channel::answer), "d");
  EXPECT_EQ(text.chars(Channel::answer), 1);
  EXPECT_EQ(text.chars(Channel::reasoning), 3);
}

TEST(JobText, PiecesPutTogetherAreTheTextFromEveryOffset) {
  JobText text;
  const std::string answer = "aé漢🙂z";
  text.append(Channel::answer, answer);
  for (std::int64_t from = 0; from <= text.size(); ++from) {
    std::string rest;
    text.pieces(from, text.size(), [&](Channel, std::string_view p, std::int64_t) { rest += p; });
    // A border inside a character moves back to its start.
    std::int64_t start = from;
    while (start > 0 && start < text.size() &&
           (answer[static_cast<std::size_t>(start)] & 0xC0) == 0x80)
      --start;
    EXPECT_EQ(rest, answer.substr(static_cast<std::size_t>(start))) << from;
  }
}

TEST(JobText, TheHashTellsChannelsApart) {
  JobText a, b, c;
  a.append(Channel::answer, "xy");
  b.append(Channel::reasoning, "xy");
  c.append(Channel::answer, "x");
  c.append(Channel::answer, "y");
  EXPECT_NE(a.sha256(), b.sha256());
  EXPECT_EQ(a.sha256(), c.sha256());
}

// --- scheduler ----------------------------------------------------------------------------------

Waiting ask(std::int64_t order, std::int64_t since = 0) {
  return {Lane::ask, {order, 0}, since};
}
Waiting batch(std::int64_t order, std::int64_t since = 0) {
  return {Lane::batch, {order, 0}, since};
}
using Order = std::vector<std::size_t>;

TEST(Scheduler, AsksGoBeforeBatchAndEachLaneBySubmission) {
  const std::vector<Waiting> waiting{batch(1), ask(4), batch(2), ask(3)};
  EXPECT_EQ(order_of_start(waiting, {2, 1, 1000}, 0), (Order{3, 1, 0, 2}));
  EXPECT_EQ(pick(waiting, {0, 0}, {2, 1, 1000}, 0).start, (Order{3, 1, 0}));
}

TEST(Scheduler, NoBatchJobStartsWhileAnAskWaits) {
  EXPECT_EQ(pick({batch(1), ask(2)}, {2, 0}, {2, 1, 1000}, 0).start, (Order{}));
  EXPECT_EQ(pick({batch(1)}, {2, 0}, {2, 1, 1000}, 0).start, (Order{0}));
}

TEST(Scheduler, AnAgedBatchJobGoesBeforeNewerAsks) {
  const std::vector<Waiting> waiting{batch(1, 0), ask(2, 500)};
  EXPECT_EQ(pick(waiting, {2, 0}, {2, 1, 1000}, 999).start, (Order{}));
  EXPECT_EQ(pick(waiting, {2, 0}, {2, 1, 1000}, 1000).start, (Order{0}));
  // An ask that came earlier still goes first.
  EXPECT_EQ(order_of_start({batch(5, 0), ask(2, 0)}, {2, 1, 1000}, 2000), (Order{1, 0}));
}

TEST(Scheduler, BatchNeverTakesAnInteractivePlace) {
  EXPECT_EQ(pick({batch(1, 0), batch(2, 0)}, {0, 1}, {2, 1, 10}, 1000).start, (Order{}));
}

TEST(Scheduler, TurnsOfOneMomentGoInOrderOfArrival) {
  const std::vector<Waiting> waiting{{Lane::ask, {7, 2}, 0}, {Lane::ask, {7, 1}, 0}, ask(8)};
  EXPECT_EQ(order_of_start(waiting, {2, 1, 1000}, 0), (Order{1, 0, 2}));
}

Waiting with(Waiting waiting, std::uint64_t bytes) {
  waiting.bytes = bytes;
  return waiting;
}

TEST(Scheduler, WhatDoesNotFitHoldsUpWhatComesAfterItInItsLane) {
  const std::vector<Waiting> waiting{with(ask(1), 50), with(ask(2), 80), with(ask(3), 10),
                                     with(batch(4), 10)};
  const Picks picks = pick(waiting, {0, 0}, {4, 4, 1000}, 0, {100, 100, false});
  EXPECT_EQ(picks.start, (Order{0}));
  EXPECT_EQ(picks.no_memory, (Order{1}));
}

TEST(Scheduler, AloneEverythingFits) {
  const std::vector<Waiting> waiting{with(batch(1), 500), with(batch(2), 10)};
  const Picks picks = pick(waiting, {0, 0}, {2, 2, 1000}, 0, {100, UINT64_MAX, true});
  EXPECT_EQ(picks.start, (Order{0}));
  EXPECT_EQ(picks.no_memory, (Order{1}));
  EXPECT_EQ(pick(waiting, {0, 0}, {2, 2, 1000}, 0, {100, UINT64_MAX, false}).start, (Order{}));
}

TEST(Scheduler, AsksPassABatchJobThatOtherBatchJobsLeaveNoRoom) {
  // Both are aged, so they stand before the ask.
  const std::vector<Waiting> waiting{with(batch(1, 0), 90), with(batch(2, 0), 10),
                                     with(ask(3, 900), 10)};
  const Picks among_batch = pick(waiting, {0, 1}, {2, 4, 100}, 1000, {50, 50, false});
  EXPECT_EQ(among_batch.start, (Order{2}));
  EXPECT_EQ(among_batch.no_memory, (Order{0}));
  // Where asks hold the memory, those that came later wait until it is free.
  const Picks beside_asks = pick(waiting, {1, 0}, {2, 4, 100}, 1000, {50, UINT64_MAX, false});
  EXPECT_EQ(beside_asks.start, (Order{}));
  EXPECT_EQ(beside_asks.no_memory, (Order{0}));
}

// T24, llama.cpp#22916, taOS#151: a second request failed, or a short one waited behind a long one.
TEST(Scheduler, UnderASteadyStreamOfAsksNeitherLaneStarves) {
  // One place each; an ask arrives every 10 ms and takes 15 ms; batch jobs wait from the start.
  std::vector<Waiting> waiting{batch(1, 0), batch(2, 0)};
  const Limits limits{1, 1, 300};
  std::int64_t order = 10, asks_done = 0, free_interactive_at = 0, free_batch_at = 0;
  std::vector<std::int64_t> batch_started;
  for (std::int64_t t = 0; t < 1000; ++t) {
    if (t % 10 == 0) waiting.push_back(ask(order++, t));
    const RunningCounts running{t < free_interactive_at ? 1 : 0, t < free_batch_at ? 1 : 0};
    std::vector<Waiting> next;
    const Order picks = pick(waiting, running, limits, t).start;
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      if (std::find(picks.begin(), picks.end(), i) == picks.end()) {
        next.push_back(waiting[i]);
      } else if (waiting[i].lane == Lane::ask) {
        free_interactive_at = t + 15;
        ++asks_done;
      } else {
        free_batch_at = t + 50;
        batch_started.push_back(t);
      }
    }
    waiting = std::move(next);
  }
  ASSERT_EQ(batch_started.size(), 2u);
  EXPECT_LE(batch_started[0], 320);
  EXPECT_LE(batch_started[1], 400);
  EXPECT_GE(asks_done, 60);
}

}  // namespace
}  // namespace ponder::jobs
