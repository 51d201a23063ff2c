#include "engine/models/qwen3.h"

#include "engine/models/registry.h"

namespace ponder::models {
namespace {

Result<DecoderConfig> read_qwen3(const artifact::Gguf& file) {
  const MetadataReader read(file, "qwen3");
  TRY(DecoderConfig c, read_qwen3_attention(read));
  TRY(c.ffn, read.integer("feed_forward_length", 1, 1 << 20));
  return c;
}

}  // namespace

Result<DecoderConfig> read_qwen3_attention(const MetadataReader& read) {
  DecoderConfig c;
  TRY_VOID(read.read_sizes(c));
  TRY_VOID(read.read_attention(c));
  c.attention.qk_norms = true;
  TRY_VOID(read.no_rope_scaling());
  TRY_VOID(read.read_vocabulary(c));
  return c;
}

const Architecture kQwen3 = {"qwen3", read_qwen3};

}  // namespace ponder::models
