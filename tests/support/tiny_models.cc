#include "tests/support/tiny_models.h"

#include <cmath>
#include <random>
#include <span>
#include <string_view>

#include "tests/support/model_files.h"

namespace ponder::testing {
namespace {

using kernels::DType;
using Extents = std::vector<std::uint64_t>;

std::uint64_t count_of(const Extents& extents) {
  std::uint64_t count = 1;
  for (const std::uint64_t extent : extents)
    count *= extent;
  return count;
}

/// Adds random tensors to a file. The same seed gives the same numbers everywhere (the standard's
/// distributions differ by library).
class TensorWriter {
 public:
  TensorWriter(GgufWriter& file, DType matrices, std::uint32_t seed)
      : file_(file), matrices_(matrices), engine_(seed) {}

  std::string prefix;

  /// [cols, rows] or [cols, rows, count] of them, of a size that keeps a row's length.
  void matrix(const std::string& name, const Extents& extents) { matrix(name, extents, matrices_); }
  void matrix(const std::string& name, const Extents& extents, DType type) {
    const float spread = std::sqrt(3.0f / static_cast<float>(extents[0]));
    add(name, extents, type, -spread, spread);
  }
  void vector(const std::string& name, const Extents& extents, float low, float high) {
    add(name, extents, DType::F32, low, high);
  }

  void feed_forward(std::uint64_t hidden, std::uint64_t ffn, const TinyMixture& m) {
    if (m.experts == 0) return dense("", hidden, ffn);
    // wide, so that the experts chosen do not hang on the last bits of a product
    add("ffn_gate_inp.weight", {hidden, m.experts}, m.routers, -0.6f, 0.6f);
    if (m.fused) {
      matrix("ffn_gate_up_exps.weight", {hidden, 2 * m.ffn, m.experts});
    } else {
      matrix("ffn_gate_exps.weight", {hidden, m.ffn, m.experts});
      matrix("ffn_up_exps.weight", {hidden, m.ffn, m.experts});
    }
    matrix("ffn_down_exps.weight", {m.ffn, hidden, m.experts});
    if (m.shared_ffn == 0) return;
    add("ffn_gate_inp_shexp.weight", {hidden}, m.routers, -0.3f, 0.3f);
    dense("_shexp", hidden, m.shared_ffn);
  }

 private:
  void dense(const std::string& suffix, std::uint64_t hidden, std::uint64_t ffn) {
    matrix("ffn_gate" + suffix + ".weight", {hidden, ffn});
    matrix("ffn_up" + suffix + ".weight", {hidden, ffn});
    matrix("ffn_down" + suffix + ".weight", {ffn, hidden});
  }
  void add(const std::string& name, const Extents& extents, DType type, float low, float high) {
    std::vector<float> values(count_of(extents));
    for (float& x : values)
      x = low + (high - low) * static_cast<float>(engine_() >> 8) * 0x1p-24f;
    file_.tensors.push_back(
        {prefix + name, extents, kernels::format(type).gguf_id, encode(type, values)});
  }

  GgufWriter& file_;
  DType matrices_;
  std::mt19937 engine_;
};

using Numbers = std::vector<std::pair<const char*, std::uint32_t>>;

void add_numbers(GgufWriter& w, const std::string& architecture, const Numbers& numbers) {
  for (const auto& [key, value] : numbers)
    w.add_u32(architecture + "." + key, value);
}
void add_mixture(GgufWriter& w, const std::string& architecture, const TinyMixture& m) {
  if (m.experts == 0) return;
  add_numbers(w, architecture,
              {{"expert_count", m.experts},
               {"expert_used_count", m.used},
               {"expert_feed_forward_length", m.ffn}});
  if (m.shared_ffn != 0)
    w.add_u32(architecture + ".expert_shared_feed_forward_length", m.shared_ffn);
}

}  // namespace

GgufWriter tiny_qwen35(const TinyQwen35& s) {
  const std::string architecture = s.mixture.experts == 0 ? "qwen35" : "qwen35moe";
  GgufWriter w;
  w.add_string("general.architecture", architecture);
  w.add_string("general.name", "tiny");
  add_numbers(w, architecture,
              {{"block_count", s.layers + s.nextn},
               {"nextn_predict_layers", s.nextn},
               {"context_length", s.context},
               {"embedding_length", s.hidden},
               {"feed_forward_length", s.ffn},
               {"attention.head_count", s.heads},
               {"attention.key_length", s.head_dim},
               {"attention.value_length", s.head_dim},
               {"rope.dimension_count", s.rot},
               {"full_attention_interval", s.interval},
               {"ssm.conv_kernel", 4},
               {"ssm.state_size", s.dk},
               {"ssm.group_count", s.k_heads},
               {"ssm.time_step_rank", s.v_heads},
               {"ssm.inner_size", s.v_heads * s.dk}});
  if (s.kv_heads_by_layer.empty())
    w.add_u32(architecture + ".attention.head_count_kv", s.kv_heads);
  else
    w.add_i32s(architecture + ".attention.head_count_kv", s.kv_heads_by_layer);
  add_mixture(w, architecture, s.mixture);
  w.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-6f);
  w.add_f32(architecture + ".rope.freq_base", 1e7f);

  TensorWriter t(w, s.matrices, s.seed);
  const std::uint64_t conv = (2 * s.k_heads + s.v_heads) * s.dk, value = s.v_heads * s.dk;
  t.matrix("token_embd.weight", {s.hidden, s.vocab});
  for (std::uint32_t i = 0; i < s.layers + (s.write_nextn ? s.nextn : 0); ++i) {
    t.prefix = "blk." + std::to_string(i) + ".";
    const bool nextn = i >= s.layers;
    t.vector("attn_norm.weight", {s.hidden}, 0.5f, 1.5f);
    t.vector("post_attention_norm.weight", {s.hidden}, 0.5f, 1.5f);
    t.feed_forward(s.hidden, s.ffn, s.mixture);
    if (nextn || (s.interval != 0 && (i + 1) % s.interval == 0)) {
      t.matrix("attn_q.weight", {s.hidden, 2 * s.heads * s.head_dim});
      t.matrix("attn_k.weight", {s.hidden, s.kv_heads * s.head_dim});
      t.matrix("attn_v.weight", {s.hidden, s.kv_heads * s.head_dim});
      t.matrix("attn_output.weight", {s.heads * s.head_dim, s.hidden});
      t.vector("attn_q_norm.weight", {s.head_dim}, 0.5f, 1.5f);
      t.vector("attn_k_norm.weight", {s.head_dim}, 0.5f, 1.5f);
    } else {
      t.matrix("attn_qkv.weight", {s.hidden, conv});
      t.matrix("attn_gate.weight", {s.hidden, value});
      t.matrix("ssm_alpha.weight", {s.hidden, s.v_heads});
      t.matrix("ssm_beta.weight", {s.hidden, s.v_heads});
      t.matrix("ssm_out.weight", {value, s.hidden});
      t.vector("ssm_conv1d.weight", {4, conv}, -0.6f, 0.9f);
      t.vector("ssm_dt.bias", {s.v_heads}, -3.0f, 1.0f);
      t.vector("ssm_a", {s.v_heads}, -4.0f, -0.05f);
      t.vector("ssm_norm.weight", {s.dk}, 0.5f, 1.5f);
    }
    if (nextn) {
      t.matrix("nextn.eh_proj.weight", {2 * s.hidden, s.hidden});
      for (const char* name : {"enorm", "hnorm", "shared_head_norm"})
        t.vector("nextn." + std::string(name) + ".weight", {s.hidden}, 0.5f, 1.5f);
    }
  }
  t.prefix.clear();
  t.vector("output_norm.weight", {s.hidden}, 0.5f, 1.5f);
  if (!s.tied) t.matrix("output.weight", {s.hidden, s.vocab});
  return w;
}

GgufWriter tiny_transformer(const TinyTransformer& s) {
  const std::string& architecture = s.architecture;
  const std::uint32_t d = s.head_dim != 0 ? s.head_dim : s.hidden / s.heads;
  GgufWriter w;
  w.add_string("general.architecture", architecture);
  w.add_string("general.name", "tiny");
  add_numbers(w, architecture,
              {{"block_count", s.layers},
               {"context_length", s.context},
               {"embedding_length", s.hidden},
               {"feed_forward_length", s.ffn},
               {"attention.head_count", s.heads},
               {"attention.head_count_kv", s.kv_heads}});
  if (s.head_dim != 0)
    add_numbers(w, architecture,
                {{"attention.key_length", s.head_dim}, {"attention.value_length", s.head_dim}});
  if (s.rot != 0) w.add_u32(architecture + ".rope.dimension_count", s.rot);
  add_mixture(w, architecture, s.mixture);
  w.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  w.add_f32(architecture + ".rope.freq_base", 1e4f);

  TensorWriter t(w, s.matrices, s.seed);
  const std::uint64_t q = s.heads * d, kv = s.kv_heads * d;
  t.matrix("token_embd.weight", {s.hidden, s.vocab});
  if (s.rope_divisors) t.vector("rope_freqs.weight", {(s.rot != 0 ? s.rot : d) / 2}, 1.0f, 8.0f);
  for (std::uint32_t i = 0; i < s.layers; ++i) {
    t.prefix = "blk." + std::to_string(i) + ".";
    t.vector("attn_norm.weight", {s.hidden}, 0.5f, 1.5f);
    t.vector("ffn_norm.weight", {s.hidden}, 0.5f, 1.5f);
    t.matrix("attn_q.weight", {s.hidden, q});
    t.matrix("attn_k.weight", {s.hidden, kv});
    t.matrix("attn_v.weight", {s.hidden, kv});
    t.matrix("attn_output.weight", {q, s.hidden});
    if (architecture != "llama") {
      t.vector("attn_q_norm.weight", {d}, 0.5f, 1.5f);
      t.vector("attn_k_norm.weight", {d}, 0.5f, 1.5f);
    }
    t.feed_forward(s.hidden, s.ffn, s.mixture);
  }
  t.prefix.clear();
  t.vector("output_norm.weight", {s.hidden}, 0.5f, 1.5f);
  if (!s.tied) t.matrix("output.weight", {s.hidden, s.vocab});
  return w;
}

}  // namespace ponder::testing
