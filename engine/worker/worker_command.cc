// `ponder-engine worker`: the process behind the daemon's WorkerGenerator.
#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif
#if defined(__GLIBC__)
#include <malloc.h>
#endif

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>
#include <thread>

#include "engine/artifact/gguf.h"
#include "engine/base/log.h"
#include "engine/base/unique_fd.h"
#include "engine/generator/protocol.h"
#include "engine/models/available_memory.h"
#include "engine/models/model.h"
#include "engine/run/local_generator.h"
#include "engine/run/state_budget.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "engine/worker/stub_generator.h"
#include "engine/worker/worker_limits.h"
#include "engine/worker/worker_server.h"

namespace ponder::worker {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;
/// Beside what the model and its states need: requests, texts, a tokenizer's tables.
constexpr std::uint64_t kSpare = 1024 * kMiB;
constexpr std::uint64_t kSpareOfThread = 16 * kMiB;  // its stack is 8
/// The same where the owner's limit leaves no room for guesses: 30 MiB were seen.
constexpr std::uint64_t kSpareBesideContexts = 64 * kMiB;

/// Dies with the daemon.
void tie_to_parent(int parent) {
#if defined(__linux__)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
  // It may have died before the line above was in force.
  if (::getppid() != parent) ::_exit(kExitDone);
}

/// Where an allocation fails and nobody takes that for an answer, the daemon shall know what it
/// was: a crash would count against the jobs that run.
[[noreturn]] void on_terminate() {
  if (const std::exception_ptr current = std::current_exception()) {
    try {
      std::rethrow_exception(current);
    } catch (const std::bad_alloc&) {
      constexpr std::string_view kWords = "ponder-engine: an allocation failed\n";
      (void)!::write(STDERR_FILENO, kWords.data(), kWords.size());
      ::_exit(protocol::kExitOutOfMemory);
    } catch (...) {
    }
  }
  std::abort();
}

void confine(const WorkerArguments& arguments) {
#if defined(__GLIBC__)
  // Left to itself glibc raises this with the largest block that was freed, and keeps what a prompt
  // of megabytes has left behind.
  ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
#endif
  for (const std::string& problem : confine_process())
    log_warn(problem);
  std::uint64_t first = 0;
  if (arguments.memory_mib)
    first = static_cast<std::uint64_t>(*arguments.memory_mib) * kMiB;
  else if (arguments.stub)
    first = kSpare;
  else  // until the file has said what it needs
    first = models::available_memory().value_or(0);
  const bool known = arguments.memory_mib || arguments.stub;
  if (!limit_memory(first, known && first > 0)) log_info("no memory limit is in force");
}

std::uint64_t bytes_of(std::optional<std::int64_t> mib, std::uint64_t otherwise) {
  return mib ? static_cast<std::uint64_t>(*mib) * kMiB : otherwise;
}

/// What the file needs with as many sequences as may run, the states kept beside them, and some.
std::uint64_t memory_for(const WorkerArguments& arguments, const models::MemoryNeed& need) {
  const run::StateBudget states = run::default_state_budget(models::available_memory());
  const auto sequences = static_cast<std::uint64_t>(std::max(arguments.sequences, 1));
  const auto threads = static_cast<std::uint64_t>(
      arguments.model.threads > 0 ? static_cast<unsigned>(arguments.model.threads)
                                  : std::max(1u, std::thread::hardware_concurrency()));
  return need.total + (sequences - 1) * (need.kv + need.state) +
         bytes_of(arguments.device_state_mib, states.device_bytes) +
         bytes_of(arguments.host_state_mib, states.host_bytes) + kSpare + threads * kSpareOfThread;
}

Result<void> limit_to_need(const WorkerArguments& arguments, const models::LoadOptions& options) {
  if (arguments.memory_mib) return {};
  TRY(const std::unique_ptr<artifact::Gguf> file, artifact::Gguf::open(arguments.model.file));
  // What is not supported is refused by the load, with better words.
  const auto need = models::memory_need(*file, options);
  if (need) limit_memory(memory_for(arguments, *need), true);
  return {};
}

/// What a limit on the whole process leaves for all that runs: what does not fit then waits, and
/// fails at no allocation. Unset where nothing limits it, or somebody said how much it is.
std::optional<std::int64_t> contexts_below_limit(const WorkerArguments& arguments) {
  if (arguments.context_mib || arguments.memory_mib.value_or(0) <= 0) return arguments.context_mib;
  const auto file = artifact::Gguf::open(arguments.model.file);
  const auto options = load_options(arguments.model);
  if (!file || !options) return {};
  models::LoadOptions load = *options;
  load.drafts = arguments.spec != 0;
  const auto need = models::memory_need(**file, load);
  if (!need) return {};
  const run::StateBudget states = run::default_state_budget(models::available_memory());
  const std::uint64_t rest = need->weights + need->scratch +
                             bytes_of(arguments.host_state_mib, states.host_bytes) +
                             kSpareBesideContexts;
  const auto limit = static_cast<std::uint64_t>(*arguments.memory_mib) * kMiB;
  // Alone a context always starts.
  return static_cast<std::int64_t>(
      std::max<std::uint64_t>(1, (limit - std::min(limit, rest)) / kMiB));
}

Result<run::LoadedModel> load_for_worker(const WorkerArguments& arguments) try {
  run::EngineOptions options;
  options.model_path = arguments.model.file;
  options.model_id = arguments.model_id;
  options.model_class = arguments.model_class;
  TRY(options.load, load_options(arguments.model));
  options.load.drafts = arguments.spec != 0;
  TRY_VOID(limit_to_need(arguments, options.load));
  TRY(run::LoadedModel loaded, run::load_model(options));
  // A daemon serves conversations first of all: better refused here than with every request.
  if (loaded.vocabulary.template_fault) return fail(*loaded.vocabulary.template_fault);
  return loaded;
} catch (const std::bad_alloc&) {
  return fail(ErrorCode::out_of_memory, "there is not enough memory to load the model",
              "use a smaller file or --ctx, close other programs, or raise worker_memory_mib");
}

}  // namespace

Result<int> run_worker(const WorkerArguments& arguments) {
  log_open("ponder-engine");
  tie_to_parent(arguments.parent);
  std::set_terminate(on_terminate);
  confine(arguments);
  // The daemon's log may have lost its reader; a line to it must not end what runs here.
  ::signal(SIGPIPE, SIG_IGN);
  UniqueFd socket(arguments.fd);
  if (arguments.stub) {
    StubGenerator stub(arguments.model.n_ctx);
    serve(std::move(socket), stub);
  }
  Result<run::LoadedModel> loaded = load_for_worker(arguments);
  if (!loaded) {
    Error error = loaded.error();
    log_error(error.message);
    // It may come back; a model that cannot be used does not.
    if (error.code == ErrorCode::device_lost) return protocol::kExitDeviceLost;
    refuse(socket.get(), error);
    return protocol::kExitModelUnusable;
  }
  run::GeneratorOptions options;
  options.spec = arguments.spec;
  options.device_state_mib = arguments.device_state_mib;
  options.host_state_mib = arguments.host_state_mib;
  options.context_mib = contexts_below_limit(arguments);
  if (const auto& tokens = arguments.effort_tokens; tokens.size() == 3)
    options.effort_budgets = {tokens[0], tokens[1], tokens[2]};
  run::LocalGenerator generator(std::move(*loaded), options);
  serve(std::move(socket), generator);
}

}  // namespace ponder::worker
