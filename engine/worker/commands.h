#pragma once
// The commands of `ponder-engine`, one file each. main.cc parses the command line; a command does
// its work on stdin and stdout and returns the exit code, or an Error for main to say on stderr.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/error.h"

namespace ponder::worker {

inline constexpr int kExitDone = 0;
inline constexpr int kExitRefused = 1;
inline constexpr int kExitUsage = 2;

struct ModelArguments {
  std::string file;
  std::int64_t n_ctx = 0;  ///< 0: the file's, at most 32,768
  int threads = 0;         ///< 0: the machine's cores
  std::string kv = "f16";
  std::int64_t chunk = 512;
  bool drafts = false;  ///< load the draft layer, where the file has one
};

struct InfoArguments {
  ModelArguments model;
  bool as_json = false;
  int spec = -1;  ///< as in GenerateArguments, with the daemon's default; 0: without the draft layer
};
Result<int> run_info(const InfoArguments& arguments);

Result<int> run_tokenize(const ModelArguments& model, bool special);
Result<int> run_detokenize(const ModelArguments& model);
Result<int> run_render(const ModelArguments& model);

Result<int> run_logits(const ModelArguments& model, int top, bool full);

struct GenerateArguments {
  ModelArguments model;
  std::int64_t n = 128;
  double temperature = 0;
  std::uint64_t seed = 0;
  bool ignore_eos = false;
  bool with_ids = false;
  int spec = 0;  ///< run/speculation.h: -1 adaptive, 0 off, 1 to 5
};
Result<int> run_generate(const GenerateArguments& arguments);

struct BenchArguments {
  ModelArguments model;
  std::vector<std::int64_t> prompts = {512};  ///< lengths of prefill tests; 0: none
  std::vector<std::int64_t> outputs = {128};  ///< lengths of decode tests; 0: none
  std::vector<std::int64_t> depths = {0};     ///< tokens in the sequence before a test begins
  int repetitions = 5;
  int spec = 0;  ///< as in GenerateArguments; decode tests then make the model's own greedy text
};
Result<int> run_bench(const BenchArguments& arguments);

Result<int> run_selftest(const ModelArguments& model);

/// How the daemon starts a worker (engine/generator/worker_process.h).
struct WorkerArguments {
  int fd = -1;     ///< the socket
  int parent = 0;  ///< the daemon's pid; the worker does not outlive it
  bool stub = false;
  ModelArguments model;
  std::string model_id;                               ///< empty: from the file's name
  std::string model_class;                            ///< empty: from the file's name
  int spec = -1;                                      ///< as in GenerateArguments
  std::vector<std::int64_t> effort_tokens = {};       ///< run::EffortBudgets: low, medium, xhigh
  std::optional<std::int64_t> device_state_mib = {};  ///< for saved states; unset: a share
  std::optional<std::int64_t> host_state_mib = {};    ///< for their copies in host memory
  std::optional<std::int64_t> memory_mib = {};  ///< at most; 0: no limit; unset: what it needs
  int sequences = 3;                            ///< that may run at once, for that need
  std::optional<std::int64_t> context_mib = {};       ///< run::GeneratorOptions
};
Result<int> run_worker(const WorkerArguments& arguments);

}  // namespace ponder::worker
