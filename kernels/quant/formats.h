#pragma once
// The weight formats, as GGUF stores them. The table is formats.inc.
#include <cstdint>
#include <optional>
#include <string_view>

namespace ponder::kernels {

enum class DType : std::uint8_t {
#define FORMAT(name, id, elements, bytes, file) name,
#include "kernels/quant/formats.inc"
#undef FORMAT
};

struct FormatInfo {
  DType type;
  std::string_view name;
  std::uint32_t gguf_id;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};

inline constexpr FormatInfo kFormats[] = {
#define FORMAT(name, id, elements, bytes, file) {DType::name, #name, id, elements, bytes},
#include "kernels/quant/formats.inc"
#undef FORMAT
};

constexpr const FormatInfo& format(DType type) {
  return kFormats[static_cast<std::size_t>(type)];
}

/// Without a look into kFormats: kernels ask, and the instruction sets' objects share nothing.
constexpr bool is_float(DType type) {
  return type == DType::F32 || type == DType::F16 || type == DType::BF16;
}
static_assert([] {
  for (const FormatInfo& f : kFormats)
    if (is_float(f.type) != (f.block_elements == 1)) return false;
  return true;
}());

constexpr std::optional<DType> dtype_of_gguf(std::uint32_t id) {
  for (const FormatInfo& f : kFormats)
    if (f.gguf_id == id) return f.type;
  return std::nullopt;
}

}  // namespace ponder::kernels
