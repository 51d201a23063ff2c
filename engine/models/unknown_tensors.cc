#include "engine/models/unknown_tensors.h"

#include <fmt/format.h>

#include <string>
#include <unordered_set>

namespace ponder::models {
namespace {

bool is_harmless(std::string_view name) {
  return !name.starts_with("blk.") || name.ends_with(".input_scale") ||
         name.ends_with(".attn_rot_embd.inv_freq");  // what rope.freq_base says already
}

std::string sentence(std::string_view name) {
  if (name.ends_with(".bias"))
    return fmt::format(
        "Tensor {} is a bias, which this build does not add; use a model without biases, such as "
        "Qwen3, Qwen3.5, Llama 3 or SmolLM2.",
        name);
  if (name.ends_with(".scale"))
    return fmt::format(
        "Tensor {} scales what is no product of a matrix of this model; use a Q4_K_M, Q6_K or Q8_0 "
        "file.",
        name);
  return fmt::format(
      "Tensor {} is no part of the models this build computes; use a file of Qwen3, Qwen3.5, Llama "
      "3 or SmolLM2 as llama.cpp converts it.",
      name);
}

}  // namespace

std::vector<std::string> unknown_tensors(const artifact::Gguf& file,
                                         const std::vector<WeightSlot>& slots) {
  std::unordered_set<std::string> known;
  for (const WeightSlot& slot : slots) {
    known.insert(slot.name);
    if (slot.vector == nullptr) known.insert(scale_name(slot.name));
    if (!slot.other_name.empty()) known.insert(slot.other_name);
  }
  const auto is_unknown = [&](const std::string& name) {
    return !known.contains(name) && !is_harmless(name);
  };
  for (const artifact::TensorInfo& t : file.tensors())
    if (is_unknown(t.name)) return {sentence(t.name)};
  for (const artifact::ForeignTensor& t : file.foreign_tensors())
    if (is_unknown(t.name)) return {sentence(t.name)};
  return {};
}

}  // namespace ponder::models
