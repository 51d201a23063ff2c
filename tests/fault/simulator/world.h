#pragma once
// One life of the queue after another, with everything that can happen to it, from one seed: the
// queue's own code on a simulated disk, a scripted model, people who ask, wait, cancel and come
// back, crashes, full disks and clocks that jump. One thread, virtual time.
#include <cstdint>
#include <string>
#include <vector>

#include "tests/fault/simulator/ledger.h"

namespace ponder::simulator {

/// A bug, planted in the simulator's own seams, to show that it would be found.
enum class Planted {
  none,
  row_lost_at_claim,
  told_before_commit,
  no_fence,
  loses_its_place,
  cancel_forgotten,
  told_forgotten,
  stop_counts_as_death,
  sync_does_nothing,
  wait_hangs,
  expires_early,
  text_told_twice,
};

struct Outcome {
  std::string breach;              ///< the first one; "" if everything held
  std::vector<std::string> trace;  ///< the last things that happened
  std::uint64_t fingerprint = 0;   ///< of all that happened
  Counts counts;
};

Outcome simulate(std::uint64_t seed, int steps, Planted planted = Planted::none);

}  // namespace ponder::simulator
