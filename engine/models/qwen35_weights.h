#pragma once
// The tensors of a qwen35 model, bound to their roles.
#include <string>
#include <vector>

#include "engine/models/qwen35_config.h"
#include "engine/models/weight_slots.h"

namespace ponder::models {

struct Qwen35Layer {
  const float* attn_norm = nullptr;  ///< [hidden]; stored as 1 + w already, like all but ssm_norm
  const float* post_attention_norm = nullptr;  ///< [hidden], before the feed-forward part
  // attention
  kernels::Weight attn_q;  ///< [heads * 2 * head_dim, hidden]: of each head, query then gate
  kernels::Weight attn_k, attn_v, attn_output;
  const float* attn_q_norm = nullptr;  ///< [head_dim]
  const float* attn_k_norm = nullptr;
  // gated delta net
  kernels::Weight attn_qkv;  ///< [conv_dim, hidden]: queries, keys, values
  kernels::Weight attn_gate, ssm_alpha, ssm_beta, ssm_out;
  const float* conv_taps = nullptr;  ///< [4, conv_dim]; the last one meets the current token
  const float* ssm_a = nullptr;      ///< [v_heads], -exp(A_log) already
  const float* ssm_dt = nullptr;     ///< [v_heads]
  const float* ssm_norm = nullptr;   ///< [dk], a plain weight
  // feed-forward
  kernels::Weight ffn_gate, ffn_up, ffn_down;
};

struct Qwen35Weights {
  kernels::Weight token_embd;
  kernels::Weight output;  ///< empty when tied
  const float* output_norm = nullptr;
  std::vector<Qwen35Layer> layers;

  const kernels::Weight& head() const { return output.empty() ? token_embd : output; }
  /// What one decode step reads: all but the embedding's other rows.
  std::uint64_t step_bytes(std::uint64_t loaded) const;
};

/// The slots of the main model. `weights` must stay where it is until they are loaded.
std::vector<WeightSlot> qwen35_slots(const Qwen35Config& config, Qwen35Weights& weights);

/// Of the multi-token-prediction blocks, whose weights are checked and not loaded.
std::vector<WeightSlot> qwen35_nextn_slots(const Qwen35Config& config);

}  // namespace ponder::models
