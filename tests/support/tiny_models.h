#pragma once
// Tiny models of every architecture, written from a seed, with every vector away from its neutral
// value, so that a norm that is forgotten or applied twice shows.
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quant/formats.h"
#include "tests/support/gguf_writer.h"

namespace ponder::testing {

/// A mixture of experts in every layer; without experts the layers are dense.
struct TinyMixture {
  std::uint32_t experts = 0, used = 0, ffn = 0;
  std::uint32_t shared_ffn = 0;  ///< 0: no shared expert
  bool fused = false;            ///< gates and ups in one tensor
  kernels::DType routers = kernels::DType::F32;
};

/// qwen35, or qwen35moe with a mixture.
struct TinyQwen35 {
  std::uint32_t layers = 8, interval = 4, nextn = 1;
  bool write_nextn = true;  ///< false: announced but absent
  bool tied = false;
  std::uint32_t hidden = 128, ffn = 352, vocab = 1009;
  std::uint32_t heads = 6, kv_heads = 1, head_dim = 64, rot = 16;
  std::uint32_t k_heads = 2, v_heads = 6, dk = 32;
  std::uint32_t context = 512;
  kernels::DType matrices = kernels::DType::F32;
  std::uint32_t seed = 1;
  std::vector<std::int32_t> kv_heads_by_layer = {};  ///< written instead of the one number
  TinyMixture mixture = {};
};
GgufWriter tiny_qwen35(const TinyQwen35& shape);

/// qwen3, qwen3moe (with a mixture) or llama.
struct TinyTransformer {
  std::string architecture = "qwen3";
  std::uint32_t layers = 4;
  bool tied = true;
  std::uint32_t hidden = 96, ffn = 176, vocab = 301;
  std::uint32_t heads = 6, kv_heads = 2;
  std::uint32_t head_dim = 0;  ///< 0: hidden / heads, and not written
  std::uint32_t rot = 0;       ///< 0: not written
  bool rope_divisors = false;
  std::uint32_t context = 512;
  kernels::DType matrices = kernels::DType::F32;
  std::uint32_t seed = 1;
  TinyMixture mixture = {};
};
GgufWriter tiny_transformer(const TinyTransformer& shape);

}  // namespace ponder::testing
