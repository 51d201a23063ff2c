// ponder-engine: a model in one process, for the daemon and as a tool.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <functional>

#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

using Command = std::function<Result<int>()>;

void add_worker(CLI::App& app, Command& chosen) {
  auto arguments = std::make_shared<WorkerArguments>();
  CLI::App* command = app.add_subcommand("worker", "serve a daemon (internal)");
  command->group("");  // not in the help
  command->add_option("--fd", arguments->fd)->required();
  command->add_option("--parent", arguments->parent)->required();
  command->add_flag("--stub", arguments->stub);
  command->add_option("--model", arguments->model);
  command->add_option("--model-id", arguments->model_id);
  command->add_option("--model-class", arguments->model_class);
  command->add_option("--ctx", arguments->n_ctx);
  command->add_option("--threads", arguments->threads);
  command->add_option("--kv", arguments->kv);
  command->callback([=, &chosen] { chosen = [=] { return run_worker(*arguments); }; });
}

int run(int argc, char** argv) {
  CLI::App app("One language model in one process.", "ponder-engine");
  app.set_version_flag("--version", PONDER_VERSION);
  app.require_subcommand(1);
  Command chosen;
  add_worker(app, chosen);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kExitDone : kExitUsage;
  }
  Result<int> code = chosen();
  if (code) return *code;
  std::fprintf(stderr, "ponder-engine: %s%s%s\n", code.error().message.c_str(),
               code.error().hint.empty() ? "" : "; ", code.error().hint.c_str());
  return kExitRefused;
}

}  // namespace
}  // namespace ponder::worker

int main(int argc, char** argv) {
  return ponder::worker::run(argc, argv);
}
