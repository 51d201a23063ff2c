#pragma once
// The commands of `ponder-engine`, one file each. main.cc parses the command line; a command does
// its work on stdin and stdout and returns the exit code, or an Error for main to say on stderr.
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace ponder::worker {

inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused = 1;
inline constexpr int kExitUsage = 2;

/// How the daemon starts a worker (engine/generator/worker_process.h).
struct WorkerArguments {
  int fd = -1;     ///< the socket
  int parent = 0;  ///< the daemon's pid; the worker does not outlive it
  bool stub = false;
  std::string model;
  std::string model_id;     ///< empty: from the file's name
  std::string model_class;  ///< empty: from the file's name
  std::int64_t n_ctx = 0;
  int threads = 0;
  std::string kv = "f16";
};
Result<int> run_worker(const WorkerArguments& arguments);

}  // namespace ponder::worker
