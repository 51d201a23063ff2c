#include "engine/models/qwen35.h"

#include <fmt/format.h>

#include "engine/models/registry.h"

namespace ponder::models {
namespace {

Result<void> read_mixers(const MetadataReader& read, DecoderConfig& c) {
  const auto layers = static_cast<std::int64_t>(c.layers.size());
  TRY(const std::int64_t interval, read.integer_or("full_attention_interval", 4, 1, 1024));
  const std::string key = read.key("attention.recurrent_layers");
  const auto kinds = read.file().integers(key);
  if (kinds && static_cast<std::int64_t>(kinds->size()) < layers)
    return unusable(fmt::format("{} has {} entries for {} layers.", key, kinds->size(), layers));
  for (std::int64_t i = 0; i < layers; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const bool recurrent = kinds ? (*kinds)[at] != 0 : (i + 1) % interval != 0;
    c.layers[at].mixer = recurrent ? Mixer::gated_delta_net : Mixer::attention;
  }
  return {};
}

Result<void> read_delta_net(const MetadataReader& read, DeltaNetConfig& d) {
  TRY(const std::int64_t taps, read.integer("ssm.conv_kernel", 1, 1024));
  if (taps != 4)
    return unusable(
        fmt::format("{} is {}; only 4 can be computed.", read.key("ssm.conv_kernel"), taps));
  TRY(d.dk, read.integer("ssm.state_size", 16, 1024));
  if (d.dk % 16 != 0)
    return unusable(
        fmt::format("{} is {}; it must be a multiple of 16.", read.key("ssm.state_size"), d.dk));
  TRY(d.k_heads, read.integer("ssm.group_count", 1, 1024));
  TRY(d.v_heads, read.integer("ssm.time_step_rank", 1, 1024));
  if (d.v_heads % d.k_heads != 0)
    return unusable(
        fmt::format("{} value heads cannot share {} key heads evenly.", d.v_heads, d.k_heads));
  TRY(const std::int64_t inner, read.integer("ssm.inner_size", 1, 1 << 20));
  if (inner != d.value_dim())
    return unusable(fmt::format("{} is {} instead of {} heads of {}.", read.key("ssm.inner_size"),
                                inner, d.v_heads, d.dk));
  return {};
}

Result<DecoderConfig> read_qwen35(const artifact::Gguf& file) {
  const MetadataReader read(file, "qwen35");
  TRY(DecoderConfig c, read_hybrid(read));
  TRY(c.ffn, read.integer("feed_forward_length", 1, 1 << 20));
  return c;
}

}  // namespace

Result<DecoderConfig> read_hybrid(const MetadataReader& read) {
  DecoderConfig c;
  TRY_VOID(read.read_sizes(c));
  TRY_VOID(read.read_attention(c));
  c.attention.output_gate = true;
  c.attention.qk_norms = true;
  c.feed_forward_norm = "post_attention_norm";
  TRY_VOID(read_delta_net(read, c.delta_net));
  TRY_VOID(read_mixers(read, c));
  TRY_VOID(read.no_rope_scaling());
  TRY_VOID(read.read_vocabulary(c));
  return c;
}

const Architecture kQwen35 = {"qwen35", read_qwen35};

}  // namespace ponder::models
