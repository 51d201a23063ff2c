// ponder-engine: a model in one process, for the daemon and as a tool. The whole command line is
// here; each command is a file of its own. Exit codes: 0, 1 (refused, one sentence on stderr),
// 2 (usage).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <new>

#include "engine/base/places.h"
#include "engine/base/utf8.h"
#include "engine/run/speculation.h"
#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

using Command = std::function<Result<int>()>;

/// What the command line asked for, filled while it is parsed.
struct Chosen {
  Command command;
  ModelArguments model;
  bool flag = false;  ///< --special, --full
  int top = 10;
  InfoArguments info;
  GenerateArguments generate;
  BenchArguments bench;
  WorkerArguments worker;
  std::string device = "cpu";
};

void add_spec(CLI::App& command, int& spec) {
  command.add_option("--spec", spec, "tokens drafted a step: -1 as many as pay, 0 none, 1 to 5")
      ->check(CLI::Range(run::kAdaptive, run::kDeepestDraft));
}

void add_model(CLI::App& command, ModelArguments& model, bool computes) {
  command.add_option("MODEL", model.file, "a GGUF file")->required();
  if (!computes) return;
  command.add_option("--ctx", model.n_ctx, "window in tokens")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 32));
  command.add_option("--threads", model.threads, "0: one for each core")
      ->check(CLI::Range(0, 1024));
  command.add_option("--kv", model.kv, "how the attention cache is kept")
      ->check(CLI::IsMember({"f32", "f16", "q8_0", "r4"}));
  command.add_option("--chunk", model.chunk, "tokens of one prefill step")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{65536}));
}

Result<void> refuse_what_is_not_built(const Chosen& chosen) {
  if (chosen.device != "cpu")
    return fail(ErrorCode::bad_request, "this engine computes on the CPU only", "use --device cpu");
  return {};
}

void add_text_commands(CLI::App& app, Chosen& chosen) {
  CLI::App* info =
      app.add_subcommand("info", "what a file is, needs, and what of it is unsupported");
  add_model(*info, chosen.info.model, true);
  info->add_flag("--json", chosen.info.as_json);
  add_spec(*info, chosen.info.spec);
  info->callback([&] { chosen.command = [&] { return run_info(chosen.info); }; });

  CLI::App* tokenize = app.add_subcommand("tokenize", "stdin to token ids");
  add_model(*tokenize, chosen.model, false);
  tokenize->add_flag("--special", chosen.flag, "texts of special tokens become their ids");
  tokenize->callback(
      [&] { chosen.command = [&] { return run_tokenize(chosen.model, chosen.flag); }; });

  CLI::App* detokenize = app.add_subcommand("detokenize", "a JSON array of token ids on stdin to their bytes");
  add_model(*detokenize, chosen.model, false);
  detokenize->callback([&] { chosen.command = [&] { return run_detokenize(chosen.model); }; });

  CLI::App* render =
      app.add_subcommand("render", "a chat request on stdin to the prompt and its ids");
  add_model(*render, chosen.model, false);
  render->callback([&] { chosen.command = [&] { return run_render(chosen.model); }; });
}

void add_model_commands(CLI::App& app, Chosen& chosen) {
  CLI::App* logits = app.add_subcommand("logits", "what the model expects after each id on stdin");
  add_model(*logits, chosen.model, true);
  logits->add_option("--top", chosen.top, "ids a position")->check(CLI::Range(0, 1 << 24));
  logits->add_flag("--full", chosen.flag, "all logits too");
  logits->callback(
      [&] { chosen.command = [&] { return run_logits(chosen.model, chosen.top, chosen.flag); }; });

  GenerateArguments& g = chosen.generate;
  CLI::App* generate = app.add_subcommand("generate", "continue the rendered prompt on stdin");
  add_model(*generate, g.model, true);
  generate->add_option("-n", g.n, "tokens at most")
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 32));
  generate->add_option("--temp", g.temperature, "0: the likeliest token")
      ->check(CLI::Range(0.0, 100.0));
  generate->add_option("--seed", g.seed);
  generate->add_flag("--ignore-eos", g.ignore_eos, "an end token is a token like any other");
  generate->add_flag("--ids", g.with_ids, "the ids too, in the line on stderr");
  add_spec(*generate, g.spec);
  generate->callback([&] { chosen.command = [&] { return run_generate(g); }; });

  CLI::App* selftest =
      app.add_subcommand("selftest", "the same tokens by every way through the engine");
  add_model(*selftest, chosen.model, true);
  selftest->callback([&] { chosen.command = [&] { return run_selftest(chosen.model); }; });
}

void add_bench(CLI::App& app, Chosen& chosen) {
  BenchArguments& b = chosen.bench;
  const auto tokens = CLI::Range(std::int64_t{0}, std::int64_t{1} << 32);
  CLI::App* bench = app.add_subcommand("bench", "speed, and how near it is to what memory gives");
  add_model(*bench, b.model, true);
  bench->add_option("-p", b.prompts, "prefill lengths; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tokens);
  bench->add_option("-n", b.outputs, "decode lengths; 0: none")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tokens);
  bench->add_option("-d", b.depths, "tokens in the sequence before a test")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(tokens);
  bench->add_option("-r", b.repetitions, "repetitions")->check(CLI::Range(1, 1000));
  bench->add_option("--device", chosen.device)->check(CLI::IsMember({"cpu", "cuda"}));
  add_spec(*bench, b.spec);
  bench->callback([&] { chosen.command = [&] { return run_bench(b); }; });
}

void add_worker(CLI::App& app, Chosen& chosen) {
  WorkerArguments& w = chosen.worker;
  CLI::App* worker = app.add_subcommand("worker", "serve a daemon (internal)");
  worker->group("");  // not in the help
  worker->add_option("--fd", w.fd)->required();
  worker->add_option("--parent", w.parent)->required();
  worker->add_flag("--stub", w.stub);
  worker->add_option("--model", w.model.file);
  worker->add_option("--model-id", w.model_id);
  worker->add_option("--model-class", w.model_class);
  worker->add_option("--ctx", w.model.n_ctx);
  worker->add_option("--threads", w.model.threads);
  worker->add_option("--kv", w.model.kv);
  worker->add_option("--device-state-mib", w.device_state_mib)->check(CLI::Range(0, 1 << 24));
  worker->add_option("--host-state-mib", w.host_state_mib)->check(CLI::Range(0, 1 << 24));
  worker->add_option("--memory-mib", w.memory_mib)->check(CLI::Range(0, 1 << 30));
  worker->add_option("--sequences", w.sequences)->check(CLI::Range(1, 1024));
  worker->add_option("--context-mib", w.context_mib)->check(CLI::Range(0, 1 << 24));
  worker->add_option("--effort-tokens", w.effort_tokens)
      ->expected(3)
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  add_spec(*worker, w.spec);
  worker->callback([&] { chosen.command = [&] { return run_worker(w); }; });
}

/// A bare name that is no file here may be one of the owner's models.
void find_model(ModelArguments& model, const std::string& home) {
  std::error_code ignored;
  if (model.file.find('/') != std::string::npos || std::filesystem::exists(model.file, ignored))
    return;
  const Result<Places> places = find_places(home);
  if (!places) return;
  const std::filesystem::path there = places->models_dir / model.file;
  if (std::filesystem::is_regular_file(there, ignored)) model.file = there.string();
}

/// A size from outside may ask for more memory than there is; that is refused like the rest.
Result<int> run_command(const Command& command) {
  try {
    return command();
  } catch (const std::bad_alloc&) {
    return fail(ErrorCode::out_of_memory, "there is not enough memory for this",
                "give less on stdin, use a smaller --ctx, or close other programs");
  }
}

/// Message and hint on one line, whatever a template or a file put into them.
std::string one_line(const Error& error) {
  std::string text = error.message;
  if (!error.hint.empty()) text += (text.ends_with('.') ? " " : "; ") + error.hint;
  text = replace_invalid(text);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7F) c = ' ';
  return text;
}

int run(int argc, char** argv) {
  CLI::App app("One language model in one process.", "ponder-engine");
  app.set_version_flag("--version", "ponder-engine " PONDER_VERSION);
  app.require_subcommand(1);
  std::string home;
  app.add_option("--home", home,
                 "where Ponder keeps its things; a bare MODEL name is sought there");
  Chosen chosen;
  add_text_commands(app, chosen);
  add_model_commands(app, chosen);
  add_bench(app, chosen);
  add_worker(app, chosen);
  for (CLI::App* command : app.get_subcommands({}))
    command->fallthrough();  // --home before or after the command
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& problem) {
    return app.exit(problem) == 0 ? kExitDone : kExitUsage;
  }
  for (ModelArguments* model :
       {&chosen.model, &chosen.info.model, &chosen.generate.model, &chosen.bench.model})
    find_model(*model, home);
  const Result<void> built = refuse_what_is_not_built(chosen);
  const Result<int> code = built ? run_command(chosen.command) : fail(built.error());
  if (code) return *code;
  std::fprintf(stderr, "ponder-engine: %s\n", one_line(code.error()).c_str());
  return kExitRefused;
}

}  // namespace
}  // namespace ponder::worker

int main(int argc, char** argv) {
  return ponder::worker::run(argc, argv);
}
