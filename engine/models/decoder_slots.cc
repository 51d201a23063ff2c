// The names and shapes of a decoder's tensors in a GGUF file.
#include <fmt/format.h>

#include <algorithm>

#include "engine/models/decoder.h"

namespace ponder::models {
namespace {

/// Collects the slots of one block under its prefix.
class Block {
 public:
  Block(const DecoderConfig& config, std::vector<WeightSlot>& out, std::int64_t index)
      : c_(config), out_(out), prefix_(fmt::format("blk.{}.", index)) {}

  void layer(LayerKind kind, DecoderLayer& layer) {
    if (kind.mixer == Mixer::attention)
      attention(layer.attention);
    else
      delta_net(layer.delta_net);
    vector("attn_norm.weight", c_.hidden, layer.mixer_norm);
    vector(c_.feed_forward_norm + ".weight", c_.hidden, layer.feed_forward_norm);
    if (kind.feed_forward == FeedForward::dense)
      dense("", c_.ffn, layer.dense);
    else
      mixture(layer.mixture);
  }

  void draft(DraftWeights& draft) {
    layer({Mixer::attention, c_.nextn_feed_forward}, draft.layer);
    matrix("nextn.eh_proj.weight", 2 * c_.hidden, c_.hidden, draft.eh_proj);
    vector("nextn.enorm.weight", c_.hidden, draft.enorm);
    vector("nextn.hnorm.weight", c_.hidden, draft.hnorm);
    vector("nextn.shared_head_norm.weight", c_.hidden, draft.output_norm);
  }

 private:
  void attention(AttentionWeights& w) {
    const AttentionConfig& a = c_.attention;
    const std::int64_t q = a.heads * a.head_dim, kv = a.kv_heads * a.head_dim;
    matrix("attn_q.weight", c_.hidden, a.output_gate ? 2 * q : q, w.q);
    matrix("attn_k.weight", c_.hidden, kv, w.k);
    matrix("attn_v.weight", c_.hidden, kv, w.v);
    matrix("attn_output.weight", q, c_.hidden, w.out);
    if (!a.qk_norms) return;
    vector("attn_q_norm.weight", a.head_dim, w.q_norm);
    vector("attn_k_norm.weight", a.head_dim, w.k_norm);
  }

  void delta_net(DeltaNetWeights& w) {
    const DeltaNetConfig& d = c_.delta_net;
    matrix("attn_qkv.weight", c_.hidden, d.conv_dim(), w.qkv);
    matrix("attn_gate.weight", c_.hidden, d.value_dim(), w.gate);
    matrix("ssm_alpha.weight", c_.hidden, d.v_heads, w.alpha);
    matrix("ssm_beta.weight", c_.hidden, d.v_heads, w.beta);
    matrix("ssm_out.weight", d.value_dim(), c_.hidden, w.out);
    WeightSlot& taps = vector("ssm_conv1d.weight", 4, w.conv_taps);
    taps.extents = {4, static_cast<std::uint64_t>(d.conv_dim())};
    taps.conv_taps = true;
    vector("ssm_dt.bias", d.v_heads, w.dt).other_name = prefix_ + "ssm_dt";
    vector("ssm_a", d.v_heads, w.a);
    vector("ssm_norm.weight", d.dk, w.norm);
  }

  void dense(const std::string& suffix, std::int64_t width, DenseWeights& w) {
    matrix("ffn_gate" + suffix + ".weight", c_.hidden, width, w.gate);
    matrix("ffn_up" + suffix + ".weight", c_.hidden, width, w.up);
    matrix("ffn_down" + suffix + ".weight", width, c_.hidden, w.down);
  }

  void mixture(MixtureWeights& w) {
    const MixtureConfig& m = c_.mixture;
    matrix("ffn_gate_inp.weight", c_.hidden, m.experts, w.router);
    if (m.fused) {
      experts("ffn_gate_up_exps.weight", c_.hidden, 2 * m.ffn, w.gate_up);
    } else {
      experts("ffn_gate_exps.weight", c_.hidden, m.ffn, w.gate);
      experts("ffn_up_exps.weight", c_.hidden, m.ffn, w.up);
    }
    experts("ffn_down_exps.weight", m.ffn, c_.hidden, w.down);
    if (m.shared_ffn == 0) return;
    vector("ffn_gate_inp_shexp.weight", c_.hidden, w.shared_router);
    dense("_shexp", m.shared_ffn, w.shared);
  }

  WeightSlot& add(const std::string& name, std::initializer_list<std::int64_t> extents) {
    WeightSlot& slot = out_.emplace_back();
    slot.name = prefix_ + name;
    for (const std::int64_t extent : extents)
      slot.extents.push_back(static_cast<std::uint64_t>(extent));
    return slot;
  }
  void matrix(const std::string& name, std::int64_t cols, std::int64_t rows,
              kernels::Weight& place) {
    add(name, {cols, rows}).matrix = &place;
  }
  void experts(const std::string& name, std::int64_t cols, std::int64_t rows,
               std::vector<kernels::Weight>& place) {
    add(name, {cols, rows, c_.mixture.experts}).experts = &place;
  }
  WeightSlot& vector(const std::string& name, std::int64_t length, const float*& place) {
    WeightSlot& slot = add(name, {length});
    slot.vector = &place;
    return slot;
  }

  const DecoderConfig& c_;
  std::vector<WeightSlot>& out_;
  std::string prefix_;
};

void add_nextn(const DecoderConfig& c, DecoderWeights& weights, bool load,
               std::vector<WeightSlot>& out) {
  const auto layers = static_cast<std::int64_t>(c.layers.size());
  for (std::int64_t i = 0; i < c.nextn; ++i) {
    const std::size_t first = out.size();
    DraftWeights unused;
    Block(c, out, layers + i).draft(i == 0 ? weights.draft : unused);
    if (load && i == 0) continue;
    for (WeightSlot& slot : std::span(out).subspan(first)) {  // checked, not loaded
      slot.matrix = nullptr;
      slot.vector = nullptr;
      slot.experts = nullptr;
    }
  }
}

}  // namespace

std::int64_t DecoderConfig::count(Mixer mixer) const {
  return std::count_if(layers.begin(), layers.end(),
                       [&](const LayerKind& kind) { return kind.mixer == mixer; });
}

bool DecoderConfig::has(FeedForward kind) const {
  return (nextn > 0 && nextn_feed_forward == kind) ||
         std::any_of(layers.begin(), layers.end(),
                     [&](const LayerKind& layer) { return layer.feed_forward == kind; });
}

std::vector<WeightSlot> decoder_slots(const DecoderConfig& c, DecoderWeights& weights,
                                      bool with_nextn, bool drafts) {
  const auto hidden = static_cast<std::uint64_t>(c.hidden),
             vocab = static_cast<std::uint64_t>(c.vocab);
  weights.layers.resize(c.layers.size());
  std::vector<WeightSlot> out;
  out.push_back({"token_embd.weight", {hidden, vocab}, &weights.token_embd});
  for (std::size_t i = 0; i < c.layers.size(); ++i)
    Block(c, out, static_cast<std::int64_t>(i)).layer(c.layers[i], weights.layers[i]);
  out.push_back({"output_norm.weight", {hidden}, nullptr, &weights.output_norm});
  if (!c.tied) out.push_back({"output.weight", {hidden, vocab}, &weights.output});
  if (c.attention.rope_divisors)
    out.push_back({"rope_freqs.weight",
                   {static_cast<std::uint64_t>(c.attention.rot / 2)},
                   nullptr,
                   &weights.rope_divisors});
  if (with_nextn) add_nextn(c, weights, drafts, out);
  return out;
}

}  // namespace ponder::models
