#pragma once
// The worker's side of the protocol: reads frames from the daemon's socket, asks a Generator, and
// writes what it says.
#include "engine/base/unique_fd.h"
#include "engine/generator/generator.h"

namespace ponder::worker {

/// Says Refused and returns; the caller then exits with protocol::kExitModelUnusable.
void refuse(int socket, const Error& error);

/// Says Hello and serves until the daemon closes the socket or breaks the protocol. Then the
/// process exits at once, with what still runs: 0 for a closed socket, 1 for a broken frame,
/// protocol::kExitDeviceLost when a generation failed with device_lost, protocol::kExitOutOfMemory
/// when a frame found no memory. Blocks the calling thread.
[[noreturn]] void serve(UniqueFd socket, Generator& generator);

}  // namespace ponder::worker
