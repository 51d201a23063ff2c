#include "engine/models/qwen35_weights.h"

#include <fmt/format.h>

namespace ponder::models {
namespace {

using Extents = std::vector<std::uint64_t>;

/// Collects the slots of one block under its prefix.
class Block {
 public:
  Block(std::vector<WeightSlot>& out, std::int64_t index)
      : out_(out), prefix_(fmt::format("blk.{}.", index)) {}

  void matrix(std::string_view name, std::int64_t cols, std::int64_t rows, kernels::Weight& place) {
    out_.push_back({prefix_ + std::string(name),
                    {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)},
                    &place});
  }
  WeightSlot& vector(std::string_view name, std::int64_t length, const float*& place) {
    out_.push_back(
        {prefix_ + std::string(name), {static_cast<std::uint64_t>(length)}, nullptr, &place});
    return out_.back();
  }
  const std::string& prefix() const { return prefix_; }

 private:
  std::vector<WeightSlot>& out_;
  std::string prefix_;
};

void add_attention(const Qwen35Config& c, Qwen35Layer& layer, Block& block) {
  block.matrix("attn_q.weight", c.hidden, 2 * c.heads * c.head_dim, layer.attn_q);
  block.matrix("attn_k.weight", c.hidden, c.kv_heads * c.head_dim, layer.attn_k);
  block.matrix("attn_v.weight", c.hidden, c.kv_heads * c.head_dim, layer.attn_v);
  block.matrix("attn_output.weight", c.heads * c.head_dim, c.hidden, layer.attn_output);
  block.vector("attn_q_norm.weight", c.head_dim, layer.attn_q_norm);
  block.vector("attn_k_norm.weight", c.head_dim, layer.attn_k_norm);
}

void add_delta_net(const Qwen35Config& c, Qwen35Layer& layer, Block& block) {
  block.matrix("attn_qkv.weight", c.hidden, c.conv_dim(), layer.attn_qkv);
  block.matrix("attn_gate.weight", c.hidden, c.value_dim(), layer.attn_gate);
  block.matrix("ssm_alpha.weight", c.hidden, c.v_heads, layer.ssm_alpha);
  block.matrix("ssm_beta.weight", c.hidden, c.v_heads, layer.ssm_beta);
  block.matrix("ssm_out.weight", c.value_dim(), c.hidden, layer.ssm_out);
  WeightSlot& taps = block.vector("ssm_conv1d.weight", 4, layer.conv_taps);
  taps.extents = {4, static_cast<std::uint64_t>(c.conv_dim())};
  taps.conv_taps = true;
  block.vector("ssm_dt.bias", c.v_heads, layer.ssm_dt).other_name = block.prefix() + "ssm_dt";
  block.vector("ssm_a", c.v_heads, layer.ssm_a);
  block.vector("ssm_norm.weight", c.dk, layer.ssm_norm);
}

void add_rest(const Qwen35Config& c, Qwen35Layer& layer, Block& block) {
  block.vector("attn_norm.weight", c.hidden, layer.attn_norm);
  block.vector("post_attention_norm.weight", c.hidden, layer.post_attention_norm);
  block.matrix("ffn_gate.weight", c.hidden, c.ffn, layer.ffn_gate);
  block.matrix("ffn_up.weight", c.hidden, c.ffn, layer.ffn_up);
  block.matrix("ffn_down.weight", c.ffn, c.hidden, layer.ffn_down);
}

}  // namespace

std::uint64_t Qwen35Weights::step_bytes(std::uint64_t loaded) const {
  if (output.empty()) return loaded;
  return loaded - kernels::Weight::packed_bytes(token_embd.type, token_embd.rows, token_embd.cols);
}

std::vector<WeightSlot> qwen35_slots(const Qwen35Config& c, Qwen35Weights& weights) {
  const auto hidden = static_cast<std::uint64_t>(c.hidden),
             vocab = static_cast<std::uint64_t>(c.vocab);
  weights.layers.resize(static_cast<std::size_t>(c.layers));
  std::vector<WeightSlot> out;
  out.push_back({"token_embd.weight", {hidden, vocab}, &weights.token_embd});
  for (std::int64_t i = 0; i < c.layers; ++i) {
    Qwen35Layer& layer = weights.layers[static_cast<std::size_t>(i)];
    Block block(out, i);
    if (c.recurrent[static_cast<std::size_t>(i)])
      add_delta_net(c, layer, block);
    else
      add_attention(c, layer, block);
    add_rest(c, layer, block);
  }
  out.push_back({"output_norm.weight", {hidden}, nullptr, &weights.output_norm});
  if (!c.tied) out.push_back({"output.weight", {hidden, vocab}, &weights.output});
  return out;
}

std::vector<WeightSlot> qwen35_nextn_slots(const Qwen35Config& c) {
  std::vector<WeightSlot> out;
  Qwen35Layer unused;
  const float* vector = nullptr;
  for (std::int64_t i = c.layers; i < c.layers + c.nextn; ++i) {
    Block block(out, i);
    add_attention(c, unused, block);
    add_rest(c, unused, block);
    block.matrix("nextn.eh_proj.weight", 2 * c.hidden, c.hidden, unused.ffn_up);
    for (const char* name :
         {"nextn.enorm.weight", "nextn.hnorm.weight", "nextn.shared_head_norm.weight"})
      block.vector(name, c.hidden, vector);
  }
  for (WeightSlot& slot : out) {  // checked, not loaded
    slot.matrix = nullptr;
    slot.vector = nullptr;
  }
  return out;
}

}  // namespace ponder::models
