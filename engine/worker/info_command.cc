// `ponder-engine info MODEL`: what a file is and needs, without loading its weights.
#include <fmt/core.h>

#include <map>

#include "engine/base/json.h"
#include "engine/base/utf8.h"
#include "engine/run/load.h"
#include "engine/worker/command_input.h"
#include "engine/worker/commands.h"

namespace ponder::worker {
namespace {

struct TypeCount {
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};

struct Facts {
  std::string arch;
  std::string name;
  std::optional<std::int64_t> n_ctx_train;
  std::map<std::string, TypeCount> tensors;
  std::optional<models::MemoryNeed> memory;
  std::vector<std::string> unsupported;
};

Result<Facts> gather(const ModelArguments& arguments) {
  TRY(const models::LoadOptions options, load_options(arguments));
  TRY(const std::unique_ptr<artifact::Gguf> file, artifact::Gguf::open(arguments.file));
  Facts facts;
  facts.arch = replace_invalid(file->string("general.architecture").value_or(""));
  facts.name = replace_invalid(file->string("general.name").value_or(""));
  facts.n_ctx_train = file->integer(facts.arch + ".context_length");
  for (const artifact::TensorInfo& tensor : file->tensors()) {
    TypeCount& type = facts.tensors[std::string(kernels::format(tensor.type).name)];
    ++type.count;
    type.bytes += tensor.bytes;
  }
  facts.unsupported = models::unsupported(*file);
  const auto vocabulary = run::load_vocabulary(*file);
  if (!vocabulary)
    facts.unsupported.push_back(vocabulary.error().message);
  else if (vocabulary->template_fault)
    facts.unsupported.push_back(vocabulary->template_fault->message);
  if (auto memory = models::memory_need(*file, options))
    facts.memory = *memory;
  else if (facts.unsupported.empty())
    return fail(memory.error());
  return facts;
}

json::object as_object(const Facts& facts) {
  json::object tensors;
  for (const auto& [type, count] : facts.tensors)
    tensors[type] = json::object{{"count", count.count}, {"bytes", count.bytes}};
  json::value memory = nullptr;
  if (facts.memory)
    memory = json::object{{"weights", facts.memory->weights},
                          {"kv", facts.memory->kv},
                          {"state", facts.memory->state},
                          {"scratch", facts.memory->scratch},
                          {"total", facts.memory->total}};
  json::array unsupported;
  for (const std::string& sentence : facts.unsupported)
    unsupported.emplace_back(replace_invalid(sentence));
  json::value n_ctx_train = nullptr;
  if (facts.n_ctx_train) n_ctx_train = *facts.n_ctx_train;
  return {{"arch", facts.arch}, {"name", facts.name}, {"n_ctx_train", n_ctx_train},
          {"tensors", tensors}, {"memory", memory},   {"unsupported", unsupported}};
}

std::string mib(std::uint64_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

/// Names come from the file: what is not printable is shown as '?'.
std::string printable(const std::string& text) {
  std::string out;
  for (const char c : text)
    out += c >= ' ' && c != 0x7F ? c : '?';
  return out;
}

std::string as_text(const Facts& facts) {
  std::string out =
      fmt::format("{}, architecture {}", printable(facts.name.empty() ? "(no name)" : facts.name),
                  printable(facts.arch.empty() ? "(none)" : facts.arch));
  if (facts.n_ctx_train) out += fmt::format(", context length {}", *facts.n_ctx_train);
  out += "\n\ntensors\n";
  for (const auto& [type, count] : facts.tensors)
    out += fmt::format("  {:<8}{:>6}  {:>12}\n", type, count.count, mib(count.bytes));
  if (facts.memory) {
    out += "\nmemory\n";
    for (const auto& [what, bytes] : {std::pair{"weights", facts.memory->weights},
                                      {"kv", facts.memory->kv},
                                      {"state", facts.memory->state},
                                      {"scratch", facts.memory->scratch},
                                      {"total", facts.memory->total}})
      out += fmt::format("  {:<8}{:>20}\n", what, mib(bytes));
  }
  out +=
      facts.unsupported.empty() ? "\nEverything in this file is supported.\n" : "\nnot supported\n";
  for (const std::string& sentence : facts.unsupported)
    out += "  " + printable(sentence) + "\n";
  return out;
}

}  // namespace

Result<int> run_info(const InfoArguments& arguments) {
  ModelArguments as_loaded = arguments.model;
  as_loaded.drafts = arguments.spec != 0;
  TRY(const Facts facts, gather(as_loaded));
  TRY_VOID(write_stdout(arguments.as_json ? to_json(as_object(facts)) + "\n" : as_text(facts)));
  return kExitDone;
}

}  // namespace ponder::worker
