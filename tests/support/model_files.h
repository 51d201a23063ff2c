#pragma once
// Model files that the tests make for themselves: a bundled file expanded to a float type, and tiny
// qwen35 models written from a seed.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "kernels/quant/formats.h"
#include "tests/support/gguf_writer.h"

namespace ponder::testing {

/// Changes the values of a tensor (by name) before it is written, to plant a fault.
using TensorEdit = std::function<void(const std::string& name, std::span<float> values)>;

/// The file at `path` with every quantised tensor as `target` (F32, F16 or BF16, rounded to
/// nearest even); other tensors and all metadata as they are.
std::string expand_gguf(const std::filesystem::path& path, kernels::DType target,
                        const TensorEdit& edit = {});

/// The same tensors and types with `edit` applied to those stored as F32.
std::string edit_gguf(const std::filesystem::path& path, const TensorEdit& edit);

/// Values as GGUF stores them in F32, F16, BF16 or Q8_0 (count a multiple of 32 for Q8_0).
std::string encode(kernels::DType type, std::span<const float> values);

struct TinyQwen35 {
  std::uint32_t layers = 8, interval = 4, nextn = 1;
  bool write_nextn = true;  ///< false: announced but absent
  bool tied = false;
  std::uint32_t hidden = 128, ffn = 352, vocab = 1009;
  std::uint32_t heads = 6, kv_heads = 1, head_dim = 64, rot = 16;
  std::uint32_t k_heads = 2, v_heads = 6, dk = 32;
  std::uint32_t context = 512;
  kernels::DType matrices = kernels::DType::F32;  ///< F32, F16, BF16 or Q8_0
  std::uint32_t seed = 1;
  std::vector<std::int32_t> kv_heads_by_layer = {};  ///< written instead of the one number
};

/// Random weights with every vector away from its neutral value, so that a norm that is forgotten
/// or applied twice shows.
GgufWriter tiny_qwen35(const TinyQwen35& shape);

}  // namespace ponder::testing
