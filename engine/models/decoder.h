#pragma once
// A decoder-only language model as data: its shape (DecoderConfig) and its tensors
// (DecoderWeights). One forward pass (decoder.cc) computes every model that can be described here,
// so that an architecture is a function from a file's metadata to a DecoderConfig and a line in
// registry.cc.
//
//   x = embed(id)
//   each layer:  x += mixer(rms(x, mixer_norm));  x += feed_forward(rms(x, feed_forward_norm))
//   logits = head * rms(x, output_norm)
//
// Which tensors a configuration wants, by which names, is decided in decoder_slots.cc.
#include <cstdint>
#include <string>
#include <vector>

#include "engine/models/weight_slots.h"
#include "kernels/core/weight.h"

namespace ponder::models {

enum class Mixer { gated_delta_net, attention };
enum class FeedForward { dense, mixture };

/// Which dimensions of a head turn together: i and i + rot / 2, or 2 i and 2 i + 1.
enum class RopePairing { neox, interleaved };

struct AttentionConfig {
  std::int64_t heads = 0;  ///< a multiple of kv_heads
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;  ///< a multiple of 16, at most 256
  bool output_gate = false;   ///< attn_q holds, of each head, the query and then a sigmoid gate
  bool qk_norms = false;      ///< RMS norms over each head's query and key, before the rotation
  float scale = 0;            ///< of the scores; 0: 1 / sqrt(head_dim)
  RopePairing pairing = RopePairing::neox;
  std::int64_t rot = 0;  ///< rotary dimensions of a head, from the first; even
  double theta = 0;
  bool rope_divisors = false;  ///< rope_freqs.weight [rot / 2] divides the frequencies
};

struct DeltaNetConfig {
  std::int64_t k_heads = 0;
  std::int64_t v_heads = 0;  ///< a multiple of k_heads; V head h uses K head h mod k_heads
  std::int64_t dk = 0;       ///< per head, keys and values alike; a multiple of 16

  std::int64_t key_dim() const { return k_heads * dk; }
  std::int64_t value_dim() const { return v_heads * dk; }
  std::int64_t conv_dim() const { return 2 * key_dim() + value_dim(); }
};

inline constexpr std::int64_t kMaxUsedExperts = 64;

/// Router softmax over all experts, the `used` largest (the lower number wins a tie), their weights
/// renormalised to a sum of 1.
struct MixtureConfig {
  std::int64_t experts = 0;     ///< at most kernels::kMaxExperts
  std::int64_t used = 0;        ///< at most kMaxUsedExperts
  std::int64_t ffn = 0;         ///< inner width of one expert
  std::int64_t shared_ffn = 0;  ///< of the shared expert with its sigmoid gate; 0: none
  bool fused = false;           ///< the file holds gates and ups as one tensor
};

struct LayerKind {
  Mixer mixer = Mixer::attention;
  FeedForward feed_forward = FeedForward::dense;
};

struct DecoderConfig {
  std::vector<LayerKind> layers;  ///< without the multi-token-prediction blocks
  std::int64_t nextn = 0;         ///< multi-token-prediction blocks that the file announces
  FeedForward nextn_feed_forward = FeedForward::dense;  ///< their mixer is attention
  std::int64_t hidden = 0;
  std::int64_t vocab = 0;
  std::int64_t n_ctx_train = 0;
  float eps = 0;
  AttentionConfig attention;
  DeltaNetConfig delta_net;                    ///< when a layer has it
  std::int64_t ffn = 0;                        ///< inner width of the dense feed-forward part
  MixtureConfig mixture;                       ///< when a layer has it
  bool tied = false;                           ///< the head is the embedding
  std::string feed_forward_norm = "ffn_norm";  ///< what the file calls it

  std::int64_t count(Mixer mixer) const;
  bool has(FeedForward kind) const;  ///< in any layer, multi-token-prediction blocks included
};

/// [cols = input, rows = output] as in kernels::Weight; a pointer is null where the configuration
/// has no such vector.
struct DenseWeights {
  kernels::Weight gate, up, down;
};

struct MixtureWeights {
  kernels::Weight router;                       ///< ffn_gate_inp: [experts, hidden]
  std::vector<kernels::Weight> gate, up, down;  ///< one an expert
  std::vector<kernels::Weight> gate_up;         ///< [2 ffn, hidden] each, instead of gate and up
  const float* shared_router = nullptr;         ///< ffn_gate_inp_shexp [hidden]
  DenseWeights shared;
};

struct AttentionWeights {
  kernels::Weight q;  ///< [heads * head_dim * (output_gate ? 2 : 1), hidden]
  kernels::Weight k, v, out;
  const float* q_norm = nullptr;  ///< [head_dim]
  const float* k_norm = nullptr;
};

struct DeltaNetWeights {
  kernels::Weight qkv;  ///< [conv_dim, hidden]: queries, keys, values
  kernels::Weight gate, alpha, beta, out;
  const float* conv_taps = nullptr;  ///< [4, conv_dim]; the last one meets the current token
  const float* a = nullptr;          ///< [v_heads], -exp(A_log) already
  const float* dt = nullptr;         ///< [v_heads]
  const float* norm = nullptr;       ///< [dk], a plain weight
};

struct DecoderLayer {
  const float* mixer_norm = nullptr;         ///< attn_norm [hidden]
  const float* feed_forward_norm = nullptr;  ///< [hidden]
  AttentionWeights attention;
  DeltaNetWeights delta_net;
  DenseWeights dense;
  MixtureWeights mixture;
};

/// One block of multi-token prediction: an attention layer over its own keys and values, fed with
/// the next token's embedding and the hidden state before it (draft_layer.h).
struct DraftWeights {
  kernels::Weight eh_proj;             ///< [hidden, 2 hidden]: embedding half first
  const float* enorm = nullptr;        ///< [hidden]
  const float* hnorm = nullptr;        ///< [hidden]
  const float* output_norm = nullptr;  ///< nextn.shared_head_norm [hidden]
  DecoderLayer layer;
};

struct DecoderWeights {
  kernels::Weight token_embd;
  kernels::Weight output;                ///< empty when tied
  const float* output_norm = nullptr;    ///< [hidden]
  const float* rope_divisors = nullptr;  ///< [rot / 2], null: none
  std::vector<DecoderLayer> layers;
  DraftWeights draft;

  const kernels::Weight& head() const { return output.empty() ? token_embd : output; }
};

/// All tensors of the model, each with its place in `weights`, which must stay where it is until
/// they are loaded. The first multi-token-prediction block is loaded only with `drafts`; what is
/// not loaded is still checked.
std::vector<WeightSlot> decoder_slots(const DecoderConfig& config, DecoderWeights& weights,
                                      bool with_nextn, bool drafts);

}  // namespace ponder::models
