#pragma once
// How the process is asked to stop. SIGTERM and SIGINT: once for a clean stop, twice for at once.
// SIGPIPE and SIGHUP are ignored. Handlers, not blocked signals: a worker process that is started
// later must not inherit a mask.
namespace ponder::daemon {

/// Installs the handlers. Call once, before any thread.
void install_signal_handlers();
/// Blocks until the first SIGTERM or SIGINT; returns its number. From then on the next one ends
/// the process at once.
int wait_for_stop_signal();
/// Ends the process with exit code 1 if it still lives after `seconds`: a stop that hangs must not
/// hang for ever.
void end_at_the_latest_in(unsigned seconds);

}  // namespace ponder::daemon
