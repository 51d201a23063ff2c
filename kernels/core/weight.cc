#include "kernels/core/weight.h"

#include <cstring>
#include <type_traits>

#include "engine/base/check.h"
#include "kernels/core/panel_layout.h"
#include "kernels/quant/float.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/iq4_xs.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/q2_k.h"
#include "kernels/quant/q3_k.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace ponder::kernels {
namespace {

constexpr std::size_t kRows = layout::kRows;
constexpr std::size_t kMostBlockBytes = 256;  // of a stored or staged block

// ---- staging: one stored block <-> its fields as the panel keeps them. Each pair is inverse.

/// The fifth bits of Q5_0 and Q5_1: bit i for column i <-> bit 8 b + k for column 4 k + b, so that
/// one shift and one `and` bring the bits of four neighbouring columns into their four bytes.
std::uint32_t spread_bits(std::uint32_t bits) {
  std::uint32_t out = 0;
  for (std::uint32_t i = 0; i < 32; ++i)
    out |= ((bits >> i) & 1u) << (8 * (i % 4) + i / 4);
  return out;
}
std::uint32_t gather_bits(std::uint32_t bits) {
  std::uint32_t out = 0;
  for (std::uint32_t i = 0; i < 32; ++i)
    out |= ((bits >> (8 * (i % 4) + i / 4)) & 1u) << i;
  return out;
}
template <std::uint32_t (*Change)(std::uint32_t)>
void change_dword(std::byte* at) {
  std::uint32_t bits;
  std::memcpy(&bits, at, 4);
  bits = Change(bits);
  std::memcpy(at, &bits, 4);
}

std::byte u8(std::uint32_t value) {
  return static_cast<std::byte>(value);
}

void flip_q8_0(std::byte* block) {
  for (int i = 2; i < q8_0::kBytes; ++i)
    block[i] ^= std::byte{0x80};
}

/// Q3_K: byte g of 0..7 holds the low four bits of scales 2 g and 2 g + 1, byte 8 + g / 2 their
/// high bits in nibble g mod 2.
void stage_q3_k(std::byte* block) {
  std::byte scales[12] = {};
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t s = q3_k::scale(block + q3_k::kScalesAt, i);
    scales[i / 2] |= u8((s & 15u) << (4 * (i % 2)));
    scales[8 + i / 4] |= u8((s >> 4) << (2 * (i % 4)));
  }
  std::memcpy(block + q3_k::kScalesAt, scales, 12);
}
void unstage_q3_k(std::byte* block) {
  std::byte scales[12] = {};
  const std::byte* staged = block + q3_k::kScalesAt;
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t low = std::to_integer<std::uint32_t>(staged[i / 2]) >> (4 * (i % 2));
    const std::uint32_t high = std::to_integer<std::uint32_t>(staged[8 + i / 4]) >> (2 * (i % 4));
    scales[i % 8] |= u8((low & 15u) << (4 * (i / 8)));
    scales[8 + i % 4] |= u8((high & 3u) << (2 * (i / 4)));
  }
  std::memcpy(block + q3_k::kScalesAt, scales, 12);
}

/// Q4_K, Q5_K: d, dmin, scales u8 [8], minima u8 [8], the rest.
void stage_k(const std::byte* block, std::size_t bytes, std::byte* staged) {
  std::memcpy(staged, block, 4);
  for (int j = 0; j < 8; ++j) {
    std::uint8_t scale, minimum;
    q4_k::scale_and_min(block + q4_k::kScalesAt, j, scale, minimum);
    staged[4 + j] = std::byte{scale};
    staged[12 + j] = std::byte{minimum};
  }
  std::memcpy(staged + 20, block + 16, bytes - 16);
}
void unstage_k(const std::byte* staged, std::size_t bytes, std::byte* block) {
  std::memcpy(block, staged, 4);
  q4_k::pack_scales_and_mins(staged + 4, staged + 12, block + q4_k::kScalesAt);
  std::memcpy(block + 16, staged + 20, bytes - 16);
}

/// IQ4_XS: d, scales i8 [8], the rest.
void stage_iq4_xs(const std::byte* block, std::byte* staged) {
  std::memcpy(staged, block, 2);
  for (int j = 0; j < 8; ++j)
    staged[2 + j] = static_cast<std::byte>(iq4_xs::scale(block, j));
  std::memcpy(staged + 10, block + iq4_xs::kCodesAt, 128);
}
void unstage_iq4_xs(const std::byte* staged, std::byte* block) {
  std::memcpy(block, staged, 2);
  std::memset(block + 2, 0, 6);
  for (int j = 0; j < 8; ++j) {
    const std::uint32_t s = (byte_at(staged, static_cast<std::size_t>(2 + j)) + 32u) & 63u;
    block[iq4_xs::kScalesHighAt + j / 4] |= u8((s >> 4) << (2 * (j % 4)));
    block[iq4_xs::kScalesLowAt + j / 2] |= u8((s & 15u) << (4 * (j % 2)));
  }
  std::memcpy(block + iq4_xs::kCodesAt, staged + 10, 128);
}

/// NVFP4: scale bytes without the exceptions of nvfp4::scale: 0x7f, which counts as 0, becomes 0,
/// and without its sign bit 0xff stays the number it is.
void stage_nvfp4(std::byte* block) {
  for (int s = 0; s < 4; ++s)
    block[s] = block[s] == std::byte{0x7f} ? std::byte{0} : block[s] & std::byte{0x7f};
}
void unstage_nvfp4(std::byte* block) {
  for (int s = 0; s < 4; ++s)
    if (block[s] == std::byte{0x7f}) block[s] = std::byte{0xff};
}

void stage(DType type, const std::byte* block, std::byte* staged) {
  const std::size_t bytes = format(type).block_bytes;
  if (type == DType::Q4_K || type == DType::Q5_K) return stage_k(block, bytes, staged);
  if (type == DType::IQ4_XS) return stage_iq4_xs(block, staged);
  std::memcpy(staged, block, bytes);
  if (type == DType::Q8_0) flip_q8_0(staged);
  if (type == DType::Q5_0) change_dword<spread_bits>(staged + q5_0::kHighAt);
  if (type == DType::Q5_1) change_dword<spread_bits>(staged + q5_1::kHighAt);
  if (type == DType::Q3_K) stage_q3_k(staged);
  if (type == DType::NVFP4) stage_nvfp4(staged);
}

void unstage(DType type, const std::byte* staged, std::byte* block) {
  const std::size_t bytes = format(type).block_bytes;
  if (type == DType::Q4_K || type == DType::Q5_K) return unstage_k(staged, bytes, block);
  if (type == DType::IQ4_XS) return unstage_iq4_xs(staged, block);
  std::memcpy(block, staged, bytes);
  if (type == DType::Q8_0) flip_q8_0(block);
  if (type == DType::Q5_0) change_dword<gather_bits>(block + q5_0::kHighAt);
  if (type == DType::Q5_1) change_dword<gather_bits>(block + q5_1::kHighAt);
  if (type == DType::Q3_K) unstage_q3_k(block);
  if (type == DType::NVFP4) unstage_nvfp4(block);
}

// ---- one row of a panel

/// Calls visit(unit, offset in the staged block, offset in the packed block) for each unit of row
/// `lane`.
template <class Visit>
void for_units(const layout::Part& part, std::size_t lane, const Visit& visit) {
  const auto run = [&](auto unit) {
    const std::size_t step = part.step != 0 ? static_cast<std::size_t>(part.step) : kRows * unit;
    for (std::size_t i = 0; i < static_cast<std::size_t>(part.bytes) / unit; ++i)
      visit(unit, static_cast<std::size_t>(part.from) + i * unit,
            static_cast<std::size_t>(part.to) + i * step + lane * unit);
  };
  if (part.unit == 4) run(std::integral_constant<std::size_t, 4>{});
  if (part.unit == 2) run(std::integral_constant<std::size_t, 2>{});
  if (part.unit == 1) run(std::integral_constant<std::size_t, 1>{});
}

/// A float row is one part: `cols` units.
layout::Part float_row(DType type, std::int64_t cols) {
  const auto unit = static_cast<int>(format(type).block_bytes);
  return {unit, 0, static_cast<int>(cols) * unit, 0};
}

void pack_row(DType type, const std::byte* source, std::int64_t cols, std::size_t lane,
              std::byte* panel) {
  if (is_float(type)) {
    for_units(float_row(type, cols), lane, [&](auto unit, std::size_t from, std::size_t to) {
      std::memcpy(panel + to, source + from, unit);
    });
    return;
  }
  const layout::Panel& layout = layout::panel(type);
  const std::size_t blocks = static_cast<std::size_t>(cols) / format(type).block_elements;
  for (std::size_t b = 0; b < blocks; ++b) {
    std::byte staged[kMostBlockBytes];
    stage(type, source + b * format(type).block_bytes, staged);
    std::byte* out = panel + b * static_cast<std::size_t>(layout.bytes);
    for (const layout::Part& part : layout.parts)
      for_units(part, lane, [&](auto unit, std::size_t from, std::size_t to) {
        std::memcpy(out + to, staged + from, unit);
      });
  }
}

/// Block b of row `lane` as it was stored.
void unpack_block(DType type, const std::byte* panel, std::size_t b, std::size_t lane,
                  std::byte* block) {
  const layout::Panel& layout = layout::panel(type);
  const std::byte* in = panel + b * static_cast<std::size_t>(layout.bytes);
  std::byte staged[kMostBlockBytes];
  for (const layout::Part& part : layout.parts)
    for_units(part, lane, [&](auto unit, std::size_t to, std::size_t from) {
      std::memcpy(staged + to, in + from, unit);
    });
  unstage(type, staged, block);
}

void decode_block(DType type, const std::byte* block, float* out) {
  switch (type) {
    case DType::F32:
      std::memcpy(out, block, 4);
      return;
    case DType::F16:
      *out = load_f16(block);
      return;
    case DType::BF16:
      *out = f32_of_bf16(load_u16(block));
      return;
    case DType::Q4_0:
      return q4_0::decode_block(block, out);
    case DType::Q4_1:
      return q4_1::decode_block(block, out);
    case DType::Q5_0:
      return q5_0::decode_block(block, out);
    case DType::Q5_1:
      return q5_1::decode_block(block, out);
    case DType::Q8_0:
      return q8_0::decode_block(block, out);
    case DType::Q2_K:
      return q2_k::decode_block(block, out);
    case DType::Q3_K:
      return q3_k::decode_block(block, out);
    case DType::Q4_K:
      return q4_k::decode_block(block, out);
    case DType::Q5_K:
      return q5_k::decode_block(block, out);
    case DType::Q6_K:
      return q6_k::decode_block(block, out);
    case DType::IQ4_NL:
      return iq4_nl::decode_block(block, out);
    case DType::IQ4_XS:
      return iq4_xs::decode_block(block, out);
    case DType::MXFP4:
      return mxfp4::decode_block(block, out);
    case DType::NVFP4:
      return nvfp4::decode_block(block, out);
  }
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
  const FormatInfo& info = format(type);
  if (is_float(type)) {
    for (std::int64_t c = 0; c < cols; ++c)
      decode_block(type, from + (static_cast<std::size_t>(c) * kRows + lane) * info.block_bytes,
                   out + c);
  } else {
    const std::size_t blocks = static_cast<std::size_t>(cols) / info.block_elements;
    for (std::size_t b = 0; b < blocks; ++b) {
      std::byte block[kMostBlockBytes];
      unpack_block(type, from, b, lane, block);
      decode_block(type, block, out + b * info.block_elements);
    }
  }
  if (scale != 1.0f)
    for (std::int64_t c = 0; c < cols; ++c)
      out[c] *= scale;
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
  const FormatInfo& info = format(type);
  CHECK(count >= 0 && count % info.block_elements == 0);
  for (std::int64_t i = 0; i < count; i += info.block_elements, source += info.block_bytes)
    decode_block(type, source, out + i);
}

}  // namespace ponder::kernels
