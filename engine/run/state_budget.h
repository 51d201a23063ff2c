#pragma once
// How memory is divided where nobody said: shares of what is free once the model is loaded.
#include <cstdint>
#include <optional>

namespace ponder::run {

struct StateBudget {
  std::uint64_t device_bytes = 0;  ///< saved states in use
  std::uint64_t host_bytes = 0;    ///< their copies in host memory
};

/// On a CPU: max(64 MiB, available / 16) but at most 4 GiB for states in use, and available / 8 but
/// at most 8 GiB for copies. Nothing is taken until there are states. Where it is not known what is
/// available (models::available_memory), the least.
StateBudget default_state_budget(std::optional<std::uint64_t> available);

/// For all sequences that run and the states in use: three quarters of what is available. 0, no
/// bound, where that is not known.
std::uint64_t default_context_budget(std::optional<std::uint64_t> available);

}  // namespace ponder::run
