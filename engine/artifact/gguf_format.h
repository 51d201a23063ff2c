#pragma once
// The numbers of the GGUF container: value types, tensor types and the limits this reader sets.
// Layout: "GGUF", u32 version, i64 tensors, i64 pairs, pairs, tensor infos, padding, data.
#include <cstdint>
#include <string_view>

namespace ponder::artifact {

enum class ValueType : std::uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12,
};
inline constexpr std::uint32_t kValueTypes = 13;

/// Bytes of one value; 0 for strings and arrays.
constexpr std::uint64_t value_bytes(ValueType type) {
  constexpr std::uint8_t bytes[kValueTypes] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
  return bytes[static_cast<std::uint32_t>(type)];
}

struct TensorType {
  std::uint32_t id;
  std::string_view name;
  std::uint32_t block_elements;
  std::uint32_t block_bytes;
};

inline constexpr TensorType kTensorTypes[] = {
#define TENSOR_TYPE(name, id, elements, bytes) {id, #name, elements, bytes},
#include "engine/artifact/tensor_types.inc"
#undef TENSOR_TYPE
};

/// nullptr for an id that names no type.
constexpr const TensorType* tensor_type(std::uint32_t id) {
  for (const TensorType& t : kTensorTypes)
    if (t.id == id) return &t;
  return nullptr;
}

// Limits. Real files stay far below: the largest of the family has 1,200 tensors, 60 pairs, 248,320
// tokens and 10 MB of metadata.
inline constexpr std::uint64_t kMaxTensors = 1u << 16;
inline constexpr std::uint64_t kMaxPairs = 1u << 14;
inline constexpr std::uint64_t kMaxKeyBytes = 1024;
inline constexpr std::uint64_t kMaxNameBytes = 64;
inline constexpr std::uint64_t kMaxStringBytes = 64u << 20;
inline constexpr std::uint64_t kMaxElements = 1u << 23;  ///< of one metadata array
inline constexpr std::uint64_t kMaxAlignment = 1u << 20;
inline constexpr std::uint64_t kMaxShards = 1024;

}  // namespace ponder::artifact
