#pragma once
// A weight matrix [rows, cols] in the layout the matrix products read: 16 rows interleaved
// (docs/kernels.md has the picture). Packed once, at load, from the bytes as GGUF stores them;
// precision is kept exactly and the size grows by at most 3 % (plus padding to 16 rows). A view:
// the memory belongs to the caller (an Arena) and must outlive it. Const after packing and then
// thread-safe.
#include <cstddef>
#include <cstdint>

#include "kernels/quant/formats.h"

namespace ponder::kernels {

struct Weight {
  static constexpr std::int64_t kPanelRows = 16;  ///< rows interleaved with each other
  static constexpr std::size_t kAlignment = 64;

  DType type = DType::F32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const std::byte* data = nullptr;  ///< packed_bytes() of them, aligned to 64
  float scale = 1.0f;               ///< multiplies every element: NVFP4's second scale

  bool empty() const { return data == nullptr; }
  /// Bytes of the packed matrix, a multiple of 64. cols must be a multiple of the format's block.
  static std::size_t packed_bytes(DType type, std::int64_t rows, std::int64_t cols);
  /// Bytes of one row as GGUF stores it.
  static std::size_t source_row_bytes(DType type, std::int64_t cols);

  std::int64_t panels() const { return (rows + kPanelRows - 1) / kPanelRows; }
  std::size_t panel_bytes() const;  ///< panels lie one after the other
  const std::byte* panel(std::int64_t index) const {
    return data + static_cast<std::size_t>(index) * panel_bytes();
  }

  /// Writes row `row`, dequantised, to out[cols]: bit-equal to decode() of the stored block,
  /// times `scale`.
  void decode_row(std::int64_t row, float* out) const;
};

/// Packs rows [first_row, first_row + row_count) of `weight` into its memory from `source`, that
/// many rows back to back as GGUF stores them (no alignment needed). first_row must be a multiple
/// of 16, and row_count too unless the range ends at the last row. Slabs may come in any order,
/// also from several threads. `memory` is the weight's data, writable.
void pack_rows(const Weight& weight, std::byte* memory, std::int64_t first_row,
               std::int64_t row_count, const std::byte* source);

/// Dequantises `count` elements (a multiple of the block) as GGUF stores them: the reference that
/// every packed layout is judged by.
void decode(DType type, const std::byte* source, std::int64_t count, float* out);

}  // namespace ponder::kernels
