#pragma once
// How soon a thread that was woken gets a processor.

namespace ponder {

/// For a thread that mostly waits and that others wait for: it takes its processor over from one
/// that computes as soon as it is woken, and not at the next tick. On Linux from 6.12 on, where a
/// fair task may ask for slices of its own length (sched_setattr(2), EEVDF); elsewhere, and where
/// it is refused, nothing happens. Takes no right and no priority: its share of the processor stays
/// the same.
void wake_this_thread_soon();

}  // namespace ponder
