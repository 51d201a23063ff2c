#pragma once
// Random inputs for kernel tests, from a seed; and weights packed from random stored blocks.
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kernels/core/arena.h"
#include "kernels/core/op_table.h"
#include "kernels/core/weight.h"
#include "kernels/quant/float.h"

namespace ponder::kernels {

inline std::vector<float> random_floats(std::size_t count, std::uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) {
    // Sum of uniform integers: near-normal, and the same with every standard library.
    std::int32_t sum = 0;
    for (int i = 0; i < 4; ++i)
      sum += static_cast<std::int32_t>(random() >> 8);
    v = scale * static_cast<float>(sum - 2 * (1 << 24)) / static_cast<float>(1 << 24);
  }
  return values;
}

inline void put_f16(std::byte* at, float value) {
  const std::uint16_t half = f16_of_f32(value);
  std::memcpy(at, &half, 2);
}

/// Where the f16 scales of a block lie: d, then dmin or m.
inline std::vector<std::size_t> f16_scales_at(DType type) {
  switch (type) {
    case DType::Q4_1:
    case DType::Q5_1:
    case DType::Q4_K:
    case DType::Q5_K:
      return {0, 2};
    case DType::Q2_K:
      return {80, 82};
    case DType::Q3_K:
      return {108};
    case DType::Q6_K:
      return {208};
    case DType::F32:
    case DType::F16:
    case DType::BF16:
    case DType::MXFP4:
    case DType::NVFP4:
      return {};
    case DType::Q4_0:
    case DType::Q5_0:
    case DType::Q8_0:
    case DType::IQ4_NL:
    case DType::IQ4_XS:
      return {0};
  }
  return {};
}

/// Rows as GGUF stores them: random codes and scales, d and dmin of sensible size.
inline std::vector<std::byte> random_rows(DType type, std::int64_t rows, std::int64_t cols,
                                          std::uint32_t seed) {
  const std::size_t bytes = Weight::source_row_bytes(type, cols) * static_cast<std::size_t>(rows);
  std::vector<std::byte> source(bytes);
  std::mt19937 random(seed);
  for (std::byte& b : source)
    b = static_cast<std::byte>(random() & 255u);
  const std::size_t count = static_cast<std::size_t>(rows * cols);
  const std::vector<float> values = random_floats(count, seed + 1, 0.05f);
  const std::size_t block = format(type).block_bytes;
  for (std::size_t i = 0; i < bytes / block; ++i) {
    std::byte* at = source.data() + i * block;
    const float d = 0.001f * static_cast<float>(1 + random() % 50);
    switch (type) {
      case DType::F32:
        std::memcpy(at, &values[i], 4);
        break;
      case DType::F16:
        put_f16(at, values[i]);
        break;
      case DType::BF16:
        std::memcpy(at, reinterpret_cast<const std::byte*>(&values[i]) + 2, 2);
        break;
      case DType::Q4_0:
      case DType::Q5_0:
      case DType::Q8_0:
        put_f16(at, d);
        break;
      case DType::Q4_1:
      case DType::Q5_1:
        put_f16(at, d);
        put_f16(at + 2, d * -8);
        break;
      case DType::Q2_K:
        put_f16(at + 80, d * 0.1f);
        put_f16(at + 82, d * 0.2f);
        break;
      case DType::Q3_K:
        put_f16(at + 108, d * 0.05f);
        break;
      case DType::Q4_K:
      case DType::Q5_K:
        put_f16(at, d * 0.1f);
        put_f16(at + 2, d * 0.2f);
        break;
      case DType::Q6_K:
        put_f16(at + 208, d * 0.01f);
        break;
      case DType::IQ4_NL:
        put_f16(at, d * 0.1f);
        break;
      case DType::IQ4_XS:
        put_f16(at, d * 0.01f);
        break;
      case DType::MXFP4:
        at[0] = static_cast<std::byte>(118 + random() % 6);
        break;
      case DType::NVFP4:
        for (int s = 0; s < 4; ++s)
          at[s] = static_cast<std::byte>(0x04 + random() % 0x18);
        break;
    }
  }
  return source;
}

/// A packed weight with its own memory.
struct PackedWeight {
  PackedWeight(DType type, std::int64_t rows, std::int64_t cols,
               const std::vector<std::byte>& source) {
    arena = Arena::make(Weight::packed_bytes(type, rows, cols)).value();
    std::byte* memory = arena.take(Weight::packed_bytes(type, rows, cols));
    weight = Weight{type, rows, cols, memory};
    pack_rows(weight, memory, 0, rows, source.data());
  }
  Arena arena;
  Weight weight;
};

inline std::vector<DType> all_types() {
  std::vector<DType> types;
  for (const FormatInfo& info : kFormats)
    types.push_back(info.type);
  return types;
}

/// Equal as bits, so that NaN equals NaN and 0 differs from -0.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

}  // namespace ponder::kernels
