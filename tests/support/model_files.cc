#include "tests/support/model_files.h"

#include <cmath>
#include <cstring>
#include <numbers>
#include <random>

#include "engine/artifact/gguf.h"
#include "engine/artifact/gguf_format.h"
#include "engine/base/check.h"
#include "kernels/core/weight.h"
#include "kernels/quant/float.h"

namespace ponder::testing {
namespace {

using kernels::DType;

/// Walks a file that is known to be sound.
class Walk {
 public:
  explicit Walk(std::string_view file) : file_(file) {}
  template <class T>
  T number() {
    T value;
    CHECK(at_ + sizeof value <= file_.size());
    std::memcpy(&value, file_.data() + at_, sizeof value);
    at_ += sizeof value;
    return value;
  }
  void skip_value(std::uint32_t type) {
    if (type == 8) {
      at_ += number<std::uint64_t>();
    } else if (type == 9) {
      const auto element = number<std::uint32_t>();
      const auto count = number<std::uint64_t>();
      for (std::uint64_t i = 0; i < count; ++i)
        skip_value(element);
    } else {
      at_ += artifact::value_bytes(static_cast<artifact::ValueType>(type));
    }
  }
  std::size_t at() const { return at_; }
  void seek(std::size_t at) { at_ = at; }

 private:
  std::string_view file_;
  std::size_t at_ = 0;
};

/// All pairs of `file` as they stand there.
void copy_pairs(std::string_view file, GgufWriter& out) {
  Walk walk(file);
  walk.seek(16);
  const auto pairs = walk.number<std::uint64_t>();
  const std::size_t begin = walk.at();
  for (std::uint64_t i = 0; i < pairs; ++i) {
    walk.skip_value(8);  // the key
    walk.skip_value(walk.number<std::uint32_t>());
  }
  out.add_pairs(pairs, file.substr(begin, walk.at() - begin));
}

std::uint16_t bf16_of_f32(float value) {
  const std::uint32_t bits = kernels::bits_of_float(value);
  return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

template <class Decide>
std::string rewrite(const std::filesystem::path& path, const TensorEdit& edit,
                    const Decide& target_of) {
  auto file = artifact::Gguf::open(path);
  CHECK_MSG(file.has_value(), file ? "" : file.error().message);
  GgufWriter out;
  copy_pairs(read_file(path), out);
  for (const artifact::TensorInfo& info : (*file)->tensors()) {
    std::vector<std::byte> stored(info.bytes);
    CHECK((*file)->read(info, stored).has_value());
    const DType target = target_of(info);
    std::string data(reinterpret_cast<const char*>(stored.data()), stored.size());
    if (target != info.type || (edit && target == DType::F32)) {
      std::uint64_t count = 1;
      for (const std::uint64_t extent : info.extents)
        count *= extent;
      std::vector<float> values(count);
      kernels::decode(info.type, stored.data(), static_cast<std::int64_t>(count), values.data());
      if (edit) edit(info.name, values);
      data = encode(target, values);
    }
    out.tensors.push_back(
        {info.name, info.extents, kernels::format(target).gguf_id, std::move(data)});
  }
  return out.bytes();
}

/// Numbers from a seed, the same everywhere (the standard's distributions differ by library).
class Random {
 public:
  explicit Random(std::uint32_t seed) : engine_(seed) {}
  float uniform(float low, float high) {
    return low + (high - low) * static_cast<float>(engine_() >> 8) * 0x1p-24f;
  }
  std::vector<float> values(std::size_t count, float low, float high) {
    std::vector<float> out(count);
    for (float& x : out)
      x = uniform(low, high);
    return out;
  }

 private:
  std::mt19937 engine_;
};

}  // namespace

std::string encode(DType type, std::span<const float> values) {
  std::string out;
  switch (type) {
    case DType::F32:
      return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
    case DType::F16:
      for (const float x : values)
        out += raw(kernels::f16_of_f32(x));
      return out;
    case DType::BF16:
      for (const float x : values)
        out += raw(bf16_of_f32(x));
      return out;
    case DType::Q8_0:
      CHECK(values.size() % 32 == 0);
      for (std::size_t at = 0; at < values.size(); at += 32) {
        float largest = 0;
        for (const float x : values.subspan(at, 32))
          largest = std::max(largest, std::fabs(x));
        const float d = largest / 127;
        out += raw(kernels::f16_of_f32(d));
        for (const float x : values.subspan(at, 32))
          out += raw(static_cast<std::int8_t>(d > 0 ? std::lround(x / d) : 0));
      }
      return out;
    default:
      CHECK_MSG(false, "no encoder for this type");
  }
  return out;
}

std::string expand_gguf(const std::filesystem::path& path, DType target, const TensorEdit& edit) {
  return rewrite(path, edit, [&](const artifact::TensorInfo& info) {
    return kernels::format(info.type).block_elements > 1 ? target : info.type;
  });
}

std::string edit_gguf(const std::filesystem::path& path, const TensorEdit& edit) {
  return rewrite(path, edit, [](const artifact::TensorInfo& info) { return info.type; });
}

GgufWriter tiny_qwen35(const TinyQwen35& s) {
  GgufWriter w;
  w.add_string("general.architecture", "qwen35");
  w.add_string("general.name", "tiny");
  const std::pair<const char*, std::uint32_t> numbers[] = {{"block_count", s.layers + s.nextn},
                                                           {"nextn_predict_layers", s.nextn},
                                                           {"context_length", s.context},
                                                           {"embedding_length", s.hidden},
                                                           {"feed_forward_length", s.ffn},
                                                           {"attention.head_count", s.heads},
                                                           {"attention.head_count_kv", s.kv_heads},
                                                           {"attention.key_length", s.head_dim},
                                                           {"attention.value_length", s.head_dim},
                                                           {"rope.dimension_count", s.rot},
                                                           {"full_attention_interval", s.interval},
                                                           {"ssm.conv_kernel", 4},
                                                           {"ssm.state_size", s.dk},
                                                           {"ssm.group_count", s.k_heads},
                                                           {"ssm.time_step_rank", s.v_heads},
                                                           {"ssm.inner_size", s.v_heads * s.dk}};
  for (const auto& [key, value] : numbers)
    if (std::string_view(key) != "attention.head_count_kv" || s.kv_heads_by_layer.empty())
      w.add_u32(std::string("qwen35.") + key, value);
  if (!s.kv_heads_by_layer.empty())
    w.add_i32s("qwen35.attention.head_count_kv", s.kv_heads_by_layer);
  w.add_f32("qwen35.attention.layer_norm_rms_epsilon", 1e-6f);
  w.add_f32("qwen35.rope.freq_base", 1e7f);

  Random random(s.seed);
  const auto matrix = [&](const std::string& name, std::uint64_t cols, std::uint64_t rows) {
    const float spread = std::sqrt(3.0f / static_cast<float>(cols));
    w.tensors.push_back({name,
                         {cols, rows},
                         kernels::format(s.matrices).gguf_id,
                         encode(s.matrices, random.values(cols * rows, -spread, spread))});
  };
  const auto vector = [&](const std::string& name, std::vector<std::uint64_t> extents, float low,
                          float high) {
    std::uint64_t count = 1;
    for (const std::uint64_t extent : extents)
      count *= extent;
    w.tensors.push_back({name, extents, 0, encode(DType::F32, random.values(count, low, high))});
  };
  const std::uint64_t conv = (2 * s.k_heads + s.v_heads) * s.dk, value = s.v_heads * s.dk;
  matrix("token_embd.weight", s.hidden, s.vocab);
  for (std::uint32_t i = 0; i < s.layers + (s.write_nextn ? s.nextn : 0); ++i) {
    const std::string p = "blk." + std::to_string(i) + ".";
    const bool nextn = i >= s.layers;
    vector(p + "attn_norm.weight", {s.hidden}, 0.5f, 1.5f);
    vector(p + "post_attention_norm.weight", {s.hidden}, 0.5f, 1.5f);
    matrix(p + "ffn_gate.weight", s.hidden, s.ffn);
    matrix(p + "ffn_up.weight", s.hidden, s.ffn);
    matrix(p + "ffn_down.weight", s.ffn, s.hidden);
    if (nextn || (s.interval != 0 && (i + 1) % s.interval == 0)) {
      matrix(p + "attn_q.weight", s.hidden, 2 * s.heads * s.head_dim);
      matrix(p + "attn_k.weight", s.hidden, s.kv_heads * s.head_dim);
      matrix(p + "attn_v.weight", s.hidden, s.kv_heads * s.head_dim);
      matrix(p + "attn_output.weight", s.heads * s.head_dim, s.hidden);
      vector(p + "attn_q_norm.weight", {s.head_dim}, 0.5f, 1.5f);
      vector(p + "attn_k_norm.weight", {s.head_dim}, 0.5f, 1.5f);
    } else {
      matrix(p + "attn_qkv.weight", s.hidden, conv);
      matrix(p + "attn_gate.weight", s.hidden, value);
      matrix(p + "ssm_alpha.weight", s.hidden, s.v_heads);
      matrix(p + "ssm_beta.weight", s.hidden, s.v_heads);
      matrix(p + "ssm_out.weight", value, s.hidden);
      vector(p + "ssm_conv1d.weight", {4, conv}, -0.6f, 0.9f);
      vector(p + "ssm_dt.bias", {s.v_heads}, -3.0f, 1.0f);
      vector(p + "ssm_a", {s.v_heads}, -4.0f, -0.05f);
      vector(p + "ssm_norm.weight", {s.dk}, 0.5f, 1.5f);
    }
    if (nextn) {
      matrix(p + "nextn.eh_proj.weight", 2 * s.hidden, s.hidden);
      for (const char* name : {"enorm", "hnorm", "shared_head_norm"})
        vector(p + "nextn." + name + ".weight", {s.hidden}, 0.5f, 1.5f);
    }
  }
  vector("output_norm.weight", {s.hidden}, 0.5f, 1.5f);
  if (!s.tied) matrix("output.weight", s.hidden, s.vocab);
  return w;
}

}  // namespace ponder::testing
