// Qwen3.5-family hybrids with a mixture of experts in every layer: the mixers of qwen35, a router,
// and a shared expert behind a sigmoid.
#include "engine/models/mixture_config.h"
#include "engine/models/qwen35.h"
#include "engine/models/registry.h"

namespace ponder::models {
namespace {

Result<DecoderConfig> read_qwen35moe(const artifact::Gguf& file) {
  const MetadataReader read(file, "qwen35moe");
  TRY(DecoderConfig c, read_hybrid(read));
  TRY_VOID(read_mixture(read, c));
  return c;
}

}  // namespace

const Architecture kQwen35Moe = {"qwen35moe", read_qwen35moe};

}  // namespace ponder::models
