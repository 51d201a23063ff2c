#pragma once
// One worker process as a thing: started with an argument vector, ended for sure, and how it
// ended in words. Private to worker_generator.cc; owned by one thread.
#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/unique_fd.h"

namespace ponder {

/// How a process ended.
struct ProcessEnd {
  bool exited = false;  ///< with `code`; else by `signal`
  int code = 0;
  int signal = 0;
  bool forced = false;  ///< it had closed its socket, lived on and was killed for it
  bool known = true;    ///< false: somebody else took its exit status
};
/// E.g. "exited with code 3", "was killed by signal 9 (Killed)".
std::string describe(const ProcessEnd& end);

class WorkerProcess {
 public:
  /// Starts `argv[0]` with `argv` and, after it, "--fd 3 --parent PID". The child has its own
  /// process group, default signals, /dev/null as stdin, this process's stderr as stdout and
  /// stderr, the socket as descriptor 3 and no other descriptor. The socket here is close-on-exec
  /// and does not block. model_missing if the program is not there, else engine_error.
  static Result<WorkerProcess> spawn(const std::vector<std::string>& argv);

  WorkerProcess(WorkerProcess&&) noexcept = default;
  WorkerProcess& operator=(WorkerProcess&&) = delete;
  /// Kills and reaps what still lives.
  ~WorkerProcess();

  pid_t pid() const { return pid_; }
  int socket() const { return socket_.get(); }
  void kill();
  /// Waits for the end. A process that outlives its socket by more than `patience_ms` is killed.
  ProcessEnd reap(int patience_ms);

 private:
  WorkerProcess(pid_t pid, UniqueFd socket) : pid_(pid), socket_(std::move(socket)) {}

  struct Pid {  // moves to 0
    pid_t value = 0;
    Pid(pid_t v) : value(v) {}
    Pid(Pid&& other) noexcept : value(std::exchange(other.value, 0)) {}
    operator pid_t() const { return value; }
  };
  Pid pid_;
  UniqueFd socket_;
};

}  // namespace ponder
