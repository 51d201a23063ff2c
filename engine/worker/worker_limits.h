#pragma once
// What a worker process may not do, whatever a model file or a prompt makes of it: it reaches no
// network and no other socket than the one it was given, starts no program, gains no rights, reads
// no other process, leaves no core file, and takes no more memory than its model needs. Linux;
// elsewhere only the resource limits.
#include <cstdint>
#include <string>
#include <vector>

namespace ponder::worker {

/// Puts everything but the memory limit in force, for this process and for good. Call before any
/// other thread exists and before a byte of a model is read. Returns what the kernel refused, a
/// sentence each: worth a line in the log, no reason not to work.
std::vector<std::string> confine_process();

/// At most so many bytes of private writable memory (RLIMIT_DATA): heap, arenas, stacks. Weights
/// that are only mapped from a file do not count, and neither does what a device driver maps: CUDA
/// on an H200 with 8 GiB there and 1 GiB of pinned memory here has 23 GiB of addresses (which is
/// why it is not RLIMIT_AS) and 40 MiB that count. Beyond it an allocation fails, and with it one
/// generation. 0: no limit. `final`: it cannot be raised again. False: refused; also in a build
/// with sanitizers, whose shadow memory alone is larger.
bool limit_memory(std::uint64_t bytes, bool final);

}  // namespace ponder::worker
