#pragma once
// How much memory saved states may take where nobody said: a share of what is free now.
#include <cstdint>

namespace ponder::run {

struct StateBudget {
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
};

/// Memory that this process may still take: the smaller of what the system has available and what
/// its control group allows. 0 where neither is known.
std::uint64_t available_memory();

/// On a CPU: max(64 MiB, available / 16) but at most 4 GiB for states in use, and available / 8 but
/// at most 8 GiB for copies. Nothing is taken until there are states.
StateBudget default_state_budget(std::uint64_t available);

}  // namespace ponder::run
