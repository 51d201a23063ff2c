#pragma once
// What ended a worker, and what follows from it: one table. Private to worker_generator.cc.
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/generator/generator.h"
#include "engine/generator/worker_process.h"

namespace ponder {

enum class WorkerFault {
  ended,          ///< exit 0, or its socket closed: the output has no end
  crashed,        ///< a signal of its own or an exit code: a bad prompt, until shown otherwise
  garbled,        ///< it sent what it may not
  out_of_memory,  ///< the system's OOM killer, or an allocation that failed
  device_lost,    ///< it said so by its exit code
  killed,         ///< SIGKILL, SIGTERM, SIGINT or SIGHUP from outside
  stalled,        ///< silent for stall_s, killed by its supervisor
  unusable,       ///< it cannot use its model
};

/// What follows. `finish` is that of every generation which ran, but for those cancelled before,
/// and but for `stalled`, where it is that of the ones that were silent (the others: killed).
struct FaultRule {
  WorkerFault fault;
  Finish finish;
  double first_pause_s;  ///< before the next worker, when the one before died as quickly; doubles
  double longest_pause_s;
  bool gives_up;           ///< so many in a row while loading, and the model is given up
  std::string_view words;  ///< what it was, beside how the process ended; may be empty
};
const FaultRule& rule_of(WorkerFault fault);

/// Of a worker that ended by itself: neither killed for its silence nor for what it sent.
WorkerFault fault_of(const ProcessEnd& end, bool oom_killer_came);

/// The pause before the next worker after `streak` quick deaths in a row. The first is followed at
/// once, except by a device, which is never back at once. `scale` shortens it for tests.
double pause_after(const FaultRule& rule, int streak, double scale);

/// Whether the kernel's OOM killer has been in a process's control group: the only thing that tells
/// its SIGKILL from that of a person. `root` is the file system's, for tests.
class OomWatch {
 public:
  explicit OomWatch(std::filesystem::path root = "/") : root_(std::move(root)) {}
  /// Finds the group of `pid` and forgets what was before.
  void begin(std::int64_t pid);
  /// To be called about once a second: kills older than two looks belong to others, and the process
  /// may have been moved to another group.
  void look();
  bool came() const;

 private:
  std::uint64_t count() const;

  const std::filesystem::path root_;
  std::int64_t pid_ = 0;
  std::filesystem::path file_;  ///< empty: the kernel does not say
  std::uint64_t before_ = 0, last_ = 0;
};

}  // namespace ponder
