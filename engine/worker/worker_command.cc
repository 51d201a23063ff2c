// `ponder-engine worker`: the process behind the daemon's WorkerGenerator.
#include <fmt/core.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <cstdio>

#include "engine/base/log.h"
#include "engine/base/unique_fd.h"
#include "engine/generator/protocol.h"
#include "engine/run/local_generator.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"
#include "engine/worker/stub_generator.h"
#include "engine/worker/worker_server.h"

namespace ponder::worker {
namespace {

/// Dies with the daemon, before it when memory runs out, and leaves no core file: that would hold
/// prompts.
void tie_to_parent(int parent) {
#if defined(__linux__)
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (std::FILE* score = std::fopen("/proc/self/oom_score_adj", "w")) {
    std::fputs("500", score);
    std::fclose(score);
  }
#endif
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  // It may have died before the line above was in force.
  if (::getppid() != parent) ::_exit(kExitDone);
}

Result<run::LoadedModel> load_for_worker(const WorkerArguments& arguments) {
  run::EngineOptions options;
  options.model_path = arguments.model.file;
  options.model_id = arguments.model_id;
  options.model_class = arguments.model_class;
  TRY(options.load, load_options(arguments.model));
  options.load.drafts = arguments.spec != 0;
  TRY(run::LoadedModel loaded, run::load_model(options));
  // A daemon serves conversations first of all: better refused here than with every request.
  if (loaded.vocabulary.template_fault) return fail(*loaded.vocabulary.template_fault);
  return loaded;
}

}  // namespace

Result<int> run_worker(const WorkerArguments& arguments) {
  log_open("ponder-engine");
  tie_to_parent(arguments.parent);
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
    refuse(socket.get(), error);
    return protocol::kExitModelUnusable;
  }
  run::GeneratorOptions options;
  options.spec = arguments.spec;
  options.device_state_mib = arguments.device_state_mib;
  options.host_state_mib = arguments.host_state_mib;
  if (const auto& tokens = arguments.effort_tokens; tokens.size() == 3)
    options.effort_budgets = {tokens[0], tokens[1], tokens[2]};
  run::LocalGenerator generator(std::move(*loaded), options);
  serve(std::move(socket), generator);
}

}  // namespace ponder::worker
