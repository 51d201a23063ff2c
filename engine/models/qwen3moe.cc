// Qwen3 with a mixture of experts in every layer, without a shared one.
#include "engine/models/mixture_config.h"
#include "engine/models/qwen3.h"
#include "engine/models/registry.h"

namespace ponder::models {
namespace {

Result<DecoderConfig> read_qwen3moe(const artifact::Gguf& file) {
  const MetadataReader read(file, "qwen3moe");
  TRY(DecoderConfig c, read_qwen3_attention(read));
  TRY_VOID(read_mixture(read, c));
  return c;
}

}  // namespace

const Architecture kQwen3Moe = {"qwen3moe", read_qwen3moe};

}  // namespace ponder::models
