#include "engine/models/registry.h"

#include <fmt/format.h>

namespace ponder::models {
namespace {

constexpr const Architecture* kArchitectures[] = {
    &kQwen35,
};

Result<const Architecture*> find(const artifact::Gguf& file) {
  const auto name = file.string("general.architecture");
  if (!name)
    return fail(
        ErrorCode::engine_error,
        "The file does not say which architecture it holds (general.architecture).",
        "Use a model file converted for llama.cpp; a vocabulary or adapter file is not enough.");
  std::string known;
  for (const Architecture* a : kArchitectures) {
    if (a->name == *name) return a;
    known += (known.empty() ? "" : ", ") + std::string(a->name);
  }
  std::string shown;  // the name comes from the file
  for (const char c : name->substr(0, 40))
    shown += c >= ' ' && c <= '~' ? c : '?';
  return fail(
      ErrorCode::engine_error,
      fmt::format("The architecture {} is not supported; this build computes: {}.", shown, known),
      "Use a Qwen3.5-family file (general.architecture qwen35).");
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(const Architecture* const architecture, find(file));
  return architecture->load(file, options);
}

Result<MemoryNeed> memory_need(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(const Architecture* const architecture, find(file));
  return architecture->memory_need(file, options);
}

std::vector<std::string> unsupported(const artifact::Gguf& file) {
  const auto architecture = find(file);
  if (!architecture) return {architecture.error().message};
  return (*architecture)->unsupported(file);
}

}  // namespace ponder::models
