#pragma once
// What the process is asked by signals. SIGTERM and SIGINT: once for a clean stop, twice for at once.
// SIGHUP: read the settings again. SIGPIPE is ignored. Handlers, not blocked signals: a worker
// process that is started later must not inherit a mask.
namespace ponder::daemon {

/// Installs the handlers. Call once, before any thread.
void install_signal_handlers();
/// Blocks until SIGTERM, SIGINT or SIGHUP; returns its number. Several SIGHUP that came meanwhile
/// are one. From the first SIGTERM or SIGINT on the next one ends the process at once.
int wait_for_signal();
/// Ends the process with exit code 1 if it still lives after `seconds`: a stop that hangs must not
/// hang for ever.
void end_at_the_latest_in(unsigned seconds);

}  // namespace ponder::daemon
