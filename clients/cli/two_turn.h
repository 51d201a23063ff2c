#pragma once
// `ponder doctor --two-turn`: does the daemon read a prompt again that it has already read? Sends a
// long prompt that it has never seen, then the same conversation with one more turn, and compares
// the times to the first token.
#include <cstdint>
#include <string>

#include "clients/cpp/daemon_client.h"

namespace ponder::cli {

struct TwoTurnReport {
  std::int64_t prompt_tokens = 0;  ///< of the first turn
  double cold_s = 0;               ///< the first turn, to its first token
  std::int64_t second_tokens = 0;  ///< prompt of the second turn
  std::int64_t cached_tokens = 0;  ///< of those, not read again
  double warm_s = 0;               ///< the second turn, to its first token
  /// Why the second turn was not ten times cheaper; empty: it was.
  std::string reason;

  double ratio() const { return warm_s > 0 ? cold_s / warm_s : 0; }
};

/// Takes as long as the model needs for one long prompt. unreachable without a running daemon,
/// bad_request when the window is too small for the test.
Result<TwoTurnReport> run_two_turn(client::DaemonClient& daemon, client::Interrupt* interrupt);

}  // namespace ponder::cli
