#include "kernels/core/weight.h"

#include "engine/base/check.h"
#include "kernels/core/panel_layout.h"
#include "kernels/quant/float.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace ponder::kernels {
namespace {

constexpr std::size_t kRows = layout::kRows;

/// Copies `bytes` (a multiple of 4) of row `lane` to their dword-interleaved places.
void interleave(const std::byte* from, std::size_t bytes, std::size_t lane, std::byte* to) {
  for (std::size_t at = 0; at < bytes; at += 4)
    std::memcpy(to + at * kRows + lane * 4, from + at, 4);
}
/// The inverse.
void deinterleave(const std::byte* from, std::size_t bytes, std::size_t lane, std::byte* to) {
  for (std::size_t at = 0; at < bytes; at += 4)
    std::memcpy(to + at, from + at * kRows + lane * 4, 4);
}

template <std::size_t Size>
void pack_float_row(const std::byte* source, std::int64_t cols, std::size_t lane,
                    std::byte* panel) {
  for (std::int64_t c = 0; c < cols; ++c)
    std::memcpy(panel + (static_cast<std::size_t>(c) * kRows + lane) * Size,
                source + static_cast<std::size_t>(c) * Size, Size);
}

void pack_q8_0_row(const std::byte* source, std::int64_t cols, std::size_t lane, std::byte* panel) {
  const auto blocks = static_cast<std::size_t>(cols) / 32;
  std::byte* scales = panel + blocks * layout::kQ8CodeBytes;
  for (std::size_t b = 0; b < blocks; ++b, source += q8_0::kBytes) {
    std::byte codes[32];
    for (int i = 0; i < 32; ++i)
      codes[i] = source[2 + i] ^ std::byte{0x80};
    interleave(codes, 32, lane, panel + b * layout::kQ8CodeBytes);
    std::memcpy(scales + b * layout::kQ8ScaleBytes + lane * 2, source, 2);
  }
}

/// Scales, minima, d and dmin of one Q4_K or Q5_K block.
void pack_k_scales(const std::byte* block, std::size_t lane, std::byte* scales) {
  for (int j = 0; j < 8; ++j) {
    std::uint8_t scale, minimum;
    q4_k::scale_and_min(block + q4_k::kScalesAt, j, scale, minimum);
    std::byte* at = scales + static_cast<std::size_t>(j) * kRows + lane;
    at[0] = std::byte{scale};
    at[layout::kMinsAfterScales] = std::byte{minimum};
  }
  std::byte* d = scales + layout::kDAfterScales + lane * 2;
  std::memcpy(d, block, 2);
  std::memcpy(d + 32, block + 2, 2);
}

void pack_row(DType type, const std::byte* source, std::int64_t cols, std::size_t lane,
              std::byte* panel) {
  const std::size_t blocks = static_cast<std::size_t>(cols) / format(type).block_elements;
  switch (type) {
    case DType::F32:
      return pack_float_row<4>(source, cols, lane, panel);
    case DType::F16:
    case DType::BF16:
      return pack_float_row<2>(source, cols, lane, panel);
    case DType::Q8_0:
      return pack_q8_0_row(source, cols, lane, panel);
    case DType::Q4_K:
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* block = source + b * q4_k::kBytes;
        std::byte* to = panel + b * layout::kQ4Bytes;
        interleave(block + q4_k::kCodesAt, 128, lane, to);
        pack_k_scales(block, lane, to + layout::kKScales);
      }
      return;
    case DType::Q5_K:
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* block = source + b * q5_k::kBytes;
        std::byte* to = panel + b * layout::kQ5Bytes;
        interleave(block + q5_k::kCodesAt, 128, lane, to);
        interleave(block + q5_k::kHighAt, 32, lane, to + layout::kQ5High);
        pack_k_scales(block, lane, to + layout::kQ5Scales);
      }
      return;
    case DType::Q6_K:
      for (std::size_t b = 0; b < blocks; ++b) {
        const std::byte* block = source + b * q6_k::kBytes;
        std::byte* to = panel + b * layout::kQ6Bytes;
        interleave(block, 128, lane, to);
        interleave(block + q6_k::kHighAt, 64, lane, to + layout::kQ6High);
        for (std::size_t g = 0; g < 16; ++g)
          to[layout::kQ6Scales + g * kRows + lane] = block[q6_k::kScalesAt + static_cast<int>(g)];
        std::memcpy(to + layout::kQ6D + lane * 2, block + q6_k::kDAt, 2);
      }
      return;
  }
}

/// One row of 32 (Q8_0) or 256 columns put back into the stored block and decoded from there. The
/// scale bytes of Q4_K and Q5_K are not packed again, so those compute the reference's formula.
void decode_q8_0(const std::byte* panel, std::int64_t cols, std::size_t lane, float* out) {
  const auto blocks = static_cast<std::size_t>(cols) / 32;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte block[q8_0::kBytes];
    std::memcpy(block, panel + blocks * layout::kQ8CodeBytes + b * layout::kQ8ScaleBytes + lane * 2,
                2);
    deinterleave(panel + b * layout::kQ8CodeBytes, 32, lane, block + 2);
    for (int i = 2; i < q8_0::kBytes; ++i)
      block[i] ^= std::byte{0x80};
    q8_0::decode_block(block, out + b * 32);
  }
}

void decode_k(const std::byte* panel, std::int64_t cols, std::size_t lane, bool five_bits,
              float* out) {
  const std::size_t stride = five_bits ? layout::kQ5Bytes : layout::kQ4Bytes;
  const std::size_t scales_at = five_bits ? layout::kQ5Scales : layout::kKScales;
  const auto blocks = static_cast<std::size_t>(cols) / 256;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* from = panel + b * stride;
    const std::byte* scales = from + scales_at;
    std::byte codes[128], high[32] = {};
    deinterleave(from, 128, lane, codes);
    if (five_bits) deinterleave(from + layout::kQ5High, 32, lane, high);
    const float d = load_f16(scales + layout::kDAfterScales + lane * 2);
    const float dmin = load_f16(scales + layout::kDAfterScales + 32 + lane * 2);
    for (std::size_t i = 0; i < 256; ++i) {
      const std::size_t j = i / 32, l = i % 32;
      const std::uint32_t low = (byte_at(codes, 32 * (j / 2) + l) >> (4 * (j % 2))) & 15u;
      const std::uint32_t code = low | (((byte_at(high, l) >> j) & 1u) << 4);
      const float step = d * static_cast<float>(byte_at(scales, j * kRows + lane));
      const float minimum =
          dmin * static_cast<float>(byte_at(scales, layout::kMinsAfterScales + j * kRows + lane));
      out[b * 256 + i] = step * static_cast<float>(code) - minimum;
    }
  }
}

void decode_q6_k(const std::byte* panel, std::int64_t cols, std::size_t lane, float* out) {
  const auto blocks = static_cast<std::size_t>(cols) / 256;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::byte* from = panel + b * layout::kQ6Bytes;
    std::byte block[q6_k::kBytes];
    deinterleave(from, 128, lane, block);
    deinterleave(from + layout::kQ6High, 64, lane, block + q6_k::kHighAt);
    for (std::size_t g = 0; g < 16; ++g)
      block[q6_k::kScalesAt + static_cast<int>(g)] = from[layout::kQ6Scales + g * kRows + lane];
    std::memcpy(block + q6_k::kDAt, from + layout::kQ6D + lane * 2, 2);
    q6_k::decode_block(block, out + b * 256);
  }
}

template <class DecodeBlock>
void decode_blocks(const std::byte* source, std::int64_t count, std::int64_t elements,
                   std::size_t bytes, float* out, DecodeBlock decode_block) {
  for (std::int64_t i = 0; i < count; i += elements, source += bytes)
    decode_block(source, out + i);
}

}  // namespace

std::size_t Weight::source_row_bytes(DType type, std::int64_t cols) {
  const FormatInfo& info = format(type);
  CHECK(cols > 0 && cols % info.block_elements == 0);
  return static_cast<std::size_t>(cols) / info.block_elements * info.block_bytes;
}

std::size_t Weight::packed_bytes(DType type, std::int64_t rows, std::int64_t cols) {
  CHECK(rows > 0 && cols > 0 && cols % format(type).block_elements == 0);
  const std::int64_t panels = (rows + kPanelRows - 1) / kPanelRows;
  return static_cast<std::size_t>(panels) * layout::panel_bytes(type, cols);
}

std::size_t Weight::panel_bytes() const {
  return layout::panel_bytes(type, cols);
}

void Weight::decode_row(std::int64_t row, float* out) const {
  CHECK(row >= 0 && row < rows);
  const std::byte* from = panel(row / kPanelRows);
  const auto lane = static_cast<std::size_t>(row % kPanelRows);
  switch (type) {
    case DType::F32:
      for (std::int64_t c = 0; c < cols; ++c)
        std::memcpy(out + c, from + (static_cast<std::size_t>(c) * kRows + lane) * 4, 4);
      return;
    case DType::F16:
      for (std::int64_t c = 0; c < cols; ++c)
        out[c] = load_f16(from + (static_cast<std::size_t>(c) * kRows + lane) * 2);
      return;
    case DType::BF16:
      for (std::int64_t c = 0; c < cols; ++c)
        out[c] = f32_of_bf16(load_u16(from + (static_cast<std::size_t>(c) * kRows + lane) * 2));
      return;
    case DType::Q8_0:
      return decode_q8_0(from, cols, lane, out);
    case DType::Q4_K:
      return decode_k(from, cols, lane, false, out);
    case DType::Q5_K:
      return decode_k(from, cols, lane, true, out);
    case DType::Q6_K:
      return decode_q6_k(from, cols, lane, out);
  }
}

void pack_rows(const Weight& weight, std::byte* memory, std::int64_t first_row,
               std::int64_t row_count, const std::byte* source) {
  CHECK(first_row >= 0 && first_row % Weight::kPanelRows == 0 && row_count >= 0);
  CHECK(first_row + row_count <= weight.rows);
  CHECK(row_count % Weight::kPanelRows == 0 || first_row + row_count == weight.rows);
  CHECK(reinterpret_cast<std::uintptr_t>(memory) % Weight::kAlignment == 0);
  const std::size_t row_bytes = Weight::source_row_bytes(weight.type, weight.cols);
  for (std::int64_t i = 0; i < row_count; ++i) {
    const std::int64_t row = first_row + i;
    std::byte* panel =
        memory + static_cast<std::size_t>(row / Weight::kPanelRows) * weight.panel_bytes();
    // Lanes past the last row compute on zeros, and nobody reads their results.
    if (row % Weight::kPanelRows == 0 && weight.rows - row < Weight::kPanelRows)
      std::memset(panel, 0, weight.panel_bytes());
    pack_row(weight.type, source + static_cast<std::size_t>(i) * row_bytes, weight.cols,
             static_cast<std::size_t>(row % Weight::kPanelRows), panel);
  }
}

void decode(DType type, const std::byte* source, std::int64_t count, float* out) {
  CHECK(count >= 0 && count % format(type).block_elements == 0);
  switch (type) {
    case DType::F32:
      std::memcpy(out, source, static_cast<std::size_t>(count) * 4);
      return;
    case DType::F16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = load_f16(source + i * 2);
      return;
    case DType::BF16:
      for (std::int64_t i = 0; i < count; ++i)
        out[i] = f32_of_bf16(load_u16(source + i * 2));
      return;
    case DType::Q8_0:
      return decode_blocks(source, count, 32, 34, out, q8_0::decode_block);
    case DType::Q4_K:
      return decode_blocks(source, count, 256, 144, out, q4_k::decode_block);
    case DType::Q5_K:
      return decode_blocks(source, count, 256, 176, out, q5_k::decode_block);
    case DType::Q6_K:
      return decode_blocks(source, count, 256, 210, out, q6_k::decode_block);
  }
}

}  // namespace ponder::kernels
