// Llama 3 and SmolLM2: plain attention. Files hold query and key rows permuted, so that the
// dimensions that turn together are neighbours. Llama 3.1 and later stretch the long wavelengths of
// the rotation; their files hold the divisors as rope_freqs.weight.
#include <fmt/format.h>

#include <algorithm>

#include "engine/models/metadata_reader.h"
#include "engine/models/registry.h"

namespace ponder::models {
namespace {

bool has_tensor(const artifact::Gguf& file, std::string_view name) {
  const auto& foreign = file.foreign_tensors();
  return file.find(name) != nullptr ||
         std::any_of(foreign.begin(), foreign.end(), [&](const auto& t) { return t.name == name; });
}

Result<DecoderConfig> read_llama(const artifact::Gguf& file) {
  const MetadataReader read(file, "llama");
  const std::int64_t experts = file.integer(read.key("expert_count")).value_or(0);
  if (experts != 0)
    return unusable(fmt::format("The file is a mixture of {} experts of the Mixtral kind, which "
                                "this build does not compute.",
                                experts),
                    "Use a Qwen3 or Qwen3.5 mixture (qwen3moe, qwen35moe).");
  DecoderConfig c;
  TRY_VOID(read.read_sizes(c));
  TRY_VOID(read.read_attention(c));
  c.attention.pairing = RopePairing::interleaved;
  c.attention.rope_divisors = has_tensor(file, "rope_freqs.weight");
  TRY(c.ffn, read.integer("feed_forward_length", 1, 1 << 20));
  TRY_VOID(read.no_rope_scaling());
  TRY_VOID(read.read_vocabulary(c));
  return c;
}

}  // namespace

const Architecture kLlama = {"llama", read_llama};

}  // namespace ponder::models
