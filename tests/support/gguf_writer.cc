#include "tests/support/gguf_writer.h"

#include <fstream>
#include <sstream>

#include "engine/base/check.h"

namespace ponder::testing {

std::string gguf_string(std::string_view text) {
  return raw<std::uint64_t>(text.size()) + std::string(text);
}
std::string gguf_array(std::uint32_t element_type, std::uint64_t count, std::string_view elements) {
  return raw(element_type) + raw(count) + std::string(elements);
}

void GgufWriter::add_raw(std::string_view key, std::uint32_t type, std::string_view bytes) {
  add_pairs(1, gguf_string(key) + raw(type) + std::string(bytes));
}
void GgufWriter::add_pairs(std::uint64_t count, std::string_view bytes) {
  metadata_ += bytes;
  pairs_ += count;
}
void GgufWriter::add_u32(std::string_view key, std::uint32_t value) {
  add_raw(key, 4, raw(value));
}
void GgufWriter::add_f32(std::string_view key, float value) {
  add_raw(key, 6, raw(value));
}
void GgufWriter::add_bool(std::string_view key, bool value) {
  add_raw(key, 7, raw<std::uint8_t>(value));
}
void GgufWriter::add_string(std::string_view key, std::string_view value) {
  add_raw(key, 8, gguf_string(value));
}
void GgufWriter::add_strings(std::string_view key, const std::vector<std::string>& values) {
  std::string elements;
  for (const std::string& value : values)
    elements += gguf_string(value);
  add_raw(key, 9, gguf_array(8, values.size(), elements));
}
void GgufWriter::add_i32s(std::string_view key, const std::vector<std::int32_t>& values) {
  std::string elements;
  for (const std::int32_t value : values)
    elements += raw(value);
  add_raw(key, 9, gguf_array(5, values.size(), elements));
}

std::string GgufWriter::bytes() const {
  std::string out = "GGUF" + raw(version) + raw(tensor_count.value_or(tensors.size())) +
                    raw(pair_count.value_or(pairs_)) + metadata_;
  const auto padded = [&](std::uint64_t size) {
    return (size + alignment - 1) / alignment * alignment;
  };
  std::uint64_t offset = 0;
  for (const GgufTensor& tensor : tensors) {
    out += gguf_string(tensor.name) + raw<std::uint32_t>(tensor.extents.size());
    for (const std::uint64_t extent : tensor.extents)
      out += raw(extent);
    out += raw(tensor.type) + raw(tensor.offset.value_or(offset));
    offset += padded(tensor.data.size());
  }
  out.resize(padded(out.size()));
  for (const GgufTensor& tensor : tensors) {
    out += tensor.data;
    out.resize(padded(out.size()));
  }
  return out;
}

void GgufWriter::write(const std::filesystem::path& file) const {
  write_file(file, bytes());
}

void write_file(const std::filesystem::path& file, std::string_view bytes) {
  std::ofstream out(file, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  out.close();
  CHECK_MSG(out.good(), "cannot write " + file.string());
}

std::string read_file(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  CHECK_MSG(in.good(), "cannot read " + file.string());
  std::ostringstream text;
  text << in.rdbuf();
  return std::move(text).str();
}

}  // namespace ponder::testing
