#include "engine/models/registry.h"

#include <fmt/format.h>

#include "engine/models/decoder_load.h"

namespace ponder::models {
namespace {

constexpr const Architecture* kArchitectures[] = {
    &kQwen35, &kQwen35Moe, &kQwen3, &kQwen3Moe, &kLlama,
};

/// What to use in the place of architectures that people come with.
std::string instead_of(std::string_view name) {
  if (name == "qwen3next") return "Use a Qwen3.5 or Qwen3.6 mixture (qwen35moe), its successor.";
  if (name.starts_with("qwen2") || name.starts_with("qwen3vl"))
    return "Use a Qwen3 or Qwen3.5 file of about the same size (qwen3, qwen35).";
  return "Use a file of Qwen3.5 or Qwen3 (qwen35, qwen35moe, qwen3, qwen3moe), Llama 3 or SmolLM2 "
         "(llama).";
}

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
      instead_of(*name));
}

/// Of a file that can be loaded.
Result<DecoderPlan> plan_of(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(const Architecture* const architecture, find(file));
  auto config = architecture->read_config(file);
  if (config) {
    const std::vector<std::string> faults = check_decoder(file, *config);
    if (faults.empty()) return plan_decoder(file, std::move(*config), options);
    config = fail(ErrorCode::engine_error, faults.front());
  }
  Error error = std::move(config).error();
  error.message = fmt::format("{} is not usable: {}", file.path().string(), error.message);
  return fail(std::move(error));
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(DecoderPlan plan, plan_of(file, options));
  TRY_VOID(check_memory(decoder_memory_need(file, plan)));
  return load_decoder(file, std::move(plan));
}

Result<MemoryNeed> memory_need(const artifact::Gguf& file, const LoadOptions& options) {
  TRY(const DecoderPlan plan, plan_of(file, options));
  return decoder_memory_need(file, plan);
}

std::vector<std::string> unsupported(const artifact::Gguf& file) {
  const auto architecture = find(file);
  if (!architecture) return {architecture.error().message};
  const auto config = (*architecture)->read_config(file);
  if (!config) return {config.error().message};
  return check_decoder(file, *config);
}

}  // namespace ponder::models
