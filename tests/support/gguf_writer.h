#pragma once
// Writes GGUF files for tests, honest ones and lying ones: counts and offsets can be overridden.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ponder::testing {

struct GgufTensor {
  std::string name;
  std::vector<std::uint64_t> extents;  ///< first = fastest varying
  std::uint32_t type = 0;              ///< GGUF type id
  std::string data;
  std::optional<std::uint64_t> offset = {};  ///< a lie; otherwise laid out in order
};

class GgufWriter {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  ///< of the layout; a key is only written by add_u32
  std::optional<std::uint64_t> tensor_count = {};  ///< lies
  std::optional<std::uint64_t> pair_count = {};
  std::vector<GgufTensor> tensors;

  void add_u32(std::string_view key, std::uint32_t value);
  void add_f32(std::string_view key, float value);
  void add_bool(std::string_view key, bool value);
  void add_string(std::string_view key, std::string_view value);
  void add_strings(std::string_view key, const std::vector<std::string>& values);
  void add_i32s(std::string_view key, const std::vector<std::int32_t>& values);
  /// Any value type id and the bytes after it.
  void add_raw(std::string_view key, std::uint32_t type, std::string_view bytes);
  /// `count` whole pairs, as they stand in another file.
  void add_pairs(std::uint64_t count, std::string_view bytes);

  std::string bytes() const;
  void write(const std::filesystem::path& file) const;

 private:
  std::uint64_t pairs_ = 0;
  std::string metadata_;
};

/// A number's little-endian bytes; a GGUF string: u64 length and the text.
template <class T>
std::string raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof value);
}
std::string gguf_string(std::string_view text);
/// The bytes of an array value: element type, count, then `elements`.
std::string gguf_array(std::uint32_t element_type, std::uint64_t count, std::string_view elements);

void write_file(const std::filesystem::path& file, std::string_view bytes);
std::string read_file(const std::filesystem::path& file);

}  // namespace ponder::testing
