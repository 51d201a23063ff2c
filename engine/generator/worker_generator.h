#pragma once
// A Generator that lives in another process: `ponder-engine worker`, started and replaced here.
// A bad model file, a device fault or the OOM killer costs the generations of one worker and
// never this process.
//
// One thread of its own starts the worker, reads its socket, calls the sinks and supervises;
// calls from other threads only leave messages for it. Thread-safe.
//
// How a generation ends when its worker does is one table, worker_fault.cc:
//   exit 0, or its socket closed without an Ended        stream_lost
//   SIGKILL, SIGTERM, SIGINT, SIGHUP from outside        worker_killed
//   the system's OOM killer, exit kExitOutOfMemory       failed(out_of_memory)
//   exit kExitDeviceLost (protocol.h)                    worker_killed
//   another signal or exit code, a frame it may not send worker_died
//   no event of it for stall_s                           stalled; others of this worker:
//                                                        worker_killed
//   cancel() was called before any of these              cancelled
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "engine/generator/generator.h"

namespace ponder {

struct WorkerOptions {
  std::filesystem::path engine_program = {};  ///< empty: ponder-engine beside the executable
  std::filesystem::path model_path = {};      ///< not used with `stub`
  std::string model_id = {};                  ///< empty: from the file's name
  std::string model_class = {};               ///< empty: from the file's name
  std::int64_t n_ctx = 0;                     ///< 0: the model's default
  int threads = 0;                            ///< 0: the machine's cores
  std::string kv = "f16";
  std::optional<std::int64_t> device_state_mib = {};  ///< for saved states; unset: a share of what
  std::optional<std::int64_t> host_state_mib = {};    ///< is free; the same for their host copies
  std::optional<std::int64_t> context_mib = {};       ///< of all that runs; unset: a share, 0: any
  /// Thinking budgets where the model's template has no word for effort.
  std::int64_t low_tokens = 2048, medium_tokens = 8192, xhigh_tokens = 131072;
  int spec = -1;            ///< tokens drafted a step: -1 as many as pay, 0 none, 1 to 5
  bool stub = false;        ///< the scripted stub instead of a model
  double stall_s = 60;      ///< no event of a running generation for so long: replace the worker
  double load_wait_s = 60;  ///< how long a call waits for a worker that is loading
  /// Of prompts that wait to be counted, for a worker that loads or is busy: beyond it queue_full,
  /// so that nothing is accepted uncounted because others send much.
  std::size_t max_call_bytes = 64u << 20;
  double load_limit_s = 1800;  ///< a load that takes longer hangs: failed, no more tries
  double pause_scale = 1;      ///< of the pauses between workers (worker_fault.cc); for tests
  /// So many workers in a row that died loading, by their own doing: failed, no more tries.
  int max_load_deaths = 5;
  std::optional<std::int64_t> memory_mib = {};  ///< of a worker; 0: no limit; unset: its need
  int sequences = 3;                            ///< generations at once, for that need
};

class WorkerGenerator final : public Generator {
 public:
  /// Starts the worker at once and returns; status() tells how it goes. A worker that cannot use
  /// its model is not started again: state failed, with its sentence as the reason.
  explicit WorkerGenerator(WorkerOptions options);
  /// Ends what runs as cancelled, ends the worker and waits until it is gone.
  ~WorkerGenerator() override;

  /// While the worker loads, calls wait for it up to load_wait_s and then are `loading`. A worker
  /// that dies under a plan or tokenize call gets it once more, then it is engine_error.
  void plan(GenerationRequest request, std::function<void(Result<PromptPlan>)> done) override;
  void plan_within(double seconds, GenerationRequest request,
                   std::function<void(Result<PromptPlan>)> done) override;
  void tokenize(std::string text, bool special,
                std::function<void(Result<std::vector<std::int32_t>>)> done) override;
  void start(GenerationId id, GenerationRequest request, std::shared_ptr<OutputSink> sink) override;
  void cancel(GenerationId id) override;
  void answer_now(GenerationId id) override;
  /// Ends the worker. The next call starts one; until then the state stays `ready`.
  void unload(std::function<void(Result<void>)> done) override;

  /// What the destructor does, while others may still call: they get an error at once.
  void stop() override;

  /// pid is 0 while no worker lives. With `ready` a reason means that the worker has not answered
  /// for more than two seconds. A load that takes more than a second says for how long it has.
  GeneratorStatus status() const override;

 private:
  class Supervisor;
  std::unique_ptr<Supervisor> supervisor_;
};

}  // namespace ponder
