#pragma once
// Model files that the tests make for themselves: a bundled file expanded to a float type, and tiny
// models written from a seed (tiny_models.h).
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

#include "kernels/quant/formats.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/tiny_models.h"

namespace ponder::testing {

/// Changes the values of a tensor (by name) before it is written, to plant a fault.
using TensorEdit = std::function<void(const std::string& name, std::span<float> values)>;

/// The file at `path` with every quantised tensor as `target` (F32, F16 or BF16, rounded to
/// nearest even); other tensors and all metadata as they are.
std::string expand_gguf(const std::filesystem::path& path, kernels::DType target,
                        const TensorEdit& edit = {});

/// The same tensors and types with `edit` applied to those stored as F32.
std::string edit_gguf(const std::filesystem::path& path, const TensorEdit& edit);

/// Values as GGUF stores them; the count must be a multiple of the type's block.
std::string encode(kernels::DType type, std::span<const float> values);

}  // namespace ponder::testing
