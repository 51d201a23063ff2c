#pragma once
// F32, F16 and BF16 weights, and the exact conversions between them. Written with integers, so
// that a value converts to the same bits as the processor's own instructions convert it.
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace ponder::kernels {

inline float float_of_bits(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline std::uint32_t bits_of_float(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline float f32_of_f16(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16;
  const std::uint32_t exponent = (half >> 10) & 31u;
  const std::uint32_t fraction = half & 0x3ffu;
  if (exponent == 31)  // infinity, or NaN made quiet
    return float_of_bits(sign | 0x7f800000u | (fraction << 13) | (fraction != 0 ? 0x400000u : 0u));
  if (exponent != 0) return float_of_bits(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Subnormal: fraction * 2^-24, exact in f32.
  const float magnitude = static_cast<float>(fraction) * 5.9604644775390625e-8f;
  return float_of_bits(sign | bits_of_float(magnitude));
}

/// Rounds to nearest, ties to even; what is too large becomes infinity.
inline std::uint16_t f16_of_f32(float value) {
  const std::uint32_t bits = bits_of_float(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {
    // Result is subnormal: adding 0.5 puts the rounding point of f32 at 2^-24.
    const float shifted = float_of_bits(magnitude) + 0.5f;
    return static_cast<std::uint16_t>(sign | (bits_of_float(shifted) - 0x3f000000u));
  }
  magnitude += 0xfffu + ((magnitude >> 13) & 1u);
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u) >> 13));
}

inline float f32_of_bf16(std::uint16_t half) {
  return float_of_bits(static_cast<std::uint32_t>(half) << 16);
}

inline std::uint16_t load_u16(const std::byte* at) {
  std::uint16_t value;
  std::memcpy(&value, at, 2);
  return value;
}
inline float load_f16(const std::byte* at) {
  return f32_of_f16(load_u16(at));
}
inline std::uint32_t byte_at(const std::byte* at, std::size_t index) {
  return std::to_integer<std::uint32_t>(at[index]);
}

}  // namespace ponder::kernels
