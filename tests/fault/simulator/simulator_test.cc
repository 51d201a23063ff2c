// Thousands of short histories of the queue, each from a number. PONDER_SEED=N plays one of them
// and prints what happened; PONDER_SOAK=1 plays 10,000.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "engine/base/log.h"
#include "engine/base/sanitized.h"
#include "tests/fault/simulator/world.h"

namespace ponder::simulator {
namespace {

constexpr int kSteps = 200;

/// What the queue logs of bad disks and stuck generations is not of interest here.
class NoLog : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!std::getenv("PONDER_LOG")) log_set_level(LogLevel::off);
  }
};
const auto* const no_log = ::testing::AddGlobalTestEnvironment(new NoLog);

int seeds() {
  if (const char* soak = std::getenv("PONDER_SOAK"); soak && std::string_view(soak) == "1")
    return 10'000;
  return kSanitized ? 60 : 200;
}

void show(const Outcome& outcome) {
  for (const std::string& line : outcome.trace)
    fmt::print("{}\n", line);
}

void figure(std::string_view promise, std::string_view what, std::string_view value,
            std::string_view bound) {
  fmt::print("FIGURE | P{} | {} | {} | {} |\n", promise, what, value, bound);
}

TEST(Simulator, EverySeedKeepsEveryPromise) {
  Counts counts;
  if (const char* one = std::getenv("PONDER_SEED")) {
    const Outcome outcome = simulate(std::strtoull(one, nullptr, 10), kSteps);
    show(outcome);
    EXPECT_EQ(outcome.breach, "");
    return;
  }
  int failed = 0;
  for (int seed = 1; seed <= seeds(); ++seed) {
    const Outcome outcome = simulate(static_cast<std::uint64_t>(seed), kSteps);
    counts.add(outcome.counts);
    if (outcome.breach.empty()) continue;
    ++failed;
    ADD_FAILURE() << "seed " << seed << ": " << outcome.breach
                  << "\nreplay it: PONDER_SEED=" << seed << " simulator_test";
    if (failed >= 5) break;
  }
  const std::string lives =
      fmt::format("{} seeds x {} steps: {} jobs accepted, {} kills, {} power cuts, {} stops",
                  seeds(), kSteps, counts.accepted, counts.kills, counts.power_cuts, counts.stops);
  const std::string broken = std::to_string(failed);
  figure("1", "simulated histories with an accepted job lost; " + lives, broken, "0");
  figure("2",
         fmt::format("the same with an end that is not its last attempt's; {} ends", counts.ended),
         broken, "0");
  figure("7",
         fmt::format("the same with a job that did not come back, or an innocent poison; {} "
                     "starts, {} deaths of the engine",
                     counts.starts, counts.deaths),
         broken, "0");
  figure("8",
         fmt::format("the same with a cancelled job that ran again; {} cancels", counts.cancels),
         broken, "0");
  figure("9", fmt::format("the same with two jobs of one key; {} keys", counts.keys), broken, "0");
  figure("10", "the same with an inversion inside a lane", broken, "0");
  figure("11",
         fmt::format("the same with an early expiry or a hung wait; {} clock jumps, {} waits, "
                     "{} expired, {} store errors",
                     counts.jumps, counts.waits, counts.expired, counts.store_errors),
         broken, "0");
}

TEST(Simulator, ASeedIsTheSameHistoryEveryTime) {
  for (const std::uint64_t seed : {3u, 17u, 40u}) {
    const Outcome first = simulate(seed, kSteps);
    const Outcome again = simulate(seed, kSteps);
    EXPECT_EQ(first.fingerprint, again.fingerprint) << "seed " << seed;
  }
}

struct Bug {
  const char* name;
  Planted planted;
  const char* found_as;
  const char* or_as = found_as;
};

constexpr Bug kBugs[] = {
    {"RowLostAtClaim", Planted::row_lost_at_claim, "is lost"},
    {"ToldBeforeCommit", Planted::told_before_commit, "is lost"},
    {"NoFence", Planted::no_fence, "it ended completed"},
    {"LosesItsPlace", Planted::loses_its_place, "which was there first"},
    {"CancelForgotten", Planted::cancel_forgotten, "cancel"},
    {"ToldForgotten", Planted::told_forgotten, "told"},
    {"StopCountsAsDeath", Planted::stop_counts_as_death, "deaths of the engine are counted"},
    {"SyncDoesNothing", Planted::sync_does_nothing, ""},
    {"WaitHangs", Planted::wait_hangs, "a wait hangs"},
    {"ExpiresEarly", Planted::expires_early, "it expired early"},
    {"TextToldTwice", Planted::text_told_twice, "its text is not the model's", "the events of"},
};

class PlantedBug : public ::testing::TestWithParam<Bug> {};

/// With a bug in it the simulation fails, and soon.
TEST_P(PlantedBug, IsFound) {
  const Bug bug = GetParam();
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const Outcome outcome = simulate(seed, kSteps, bug.planted);
    if (outcome.breach.empty()) continue;
    const bool right = outcome.breach.find(bug.found_as) != std::string::npos ||
                       outcome.breach.find(bug.or_as) != std::string::npos;
    if (!right) show(outcome);
    EXPECT_TRUE(right) << "seed " << seed << ": " << outcome.breach;
    return;
  }
  ADD_FAILURE() << "60 seeds did not find it";
}

std::string name_of(const ::testing::TestParamInfo<Bug>& bug) {
  return bug.param.name;
}
INSTANTIATE_TEST_SUITE_P(Simulator, PlantedBug, ::testing::ValuesIn(kBugs), name_of);

}  // namespace
}  // namespace ponder::simulator
