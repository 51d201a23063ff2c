#include "engine/artifact/directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>

#include "engine/artifact/cursor.h"

namespace ponder::artifact {
namespace {

constexpr std::uint64_t kLeastPair = 13;  // key of no bytes, type, one byte
constexpr std::uint64_t kLeastInfo = 32;  // name of no bytes, dimensions, one extent, type, offset
constexpr std::uint64_t kMost = 0x7fff'ffff'ffff'ffff;

/// What is computed is named, under the same numbers: else a file that has it would be refused.
constexpr bool names_what_is_computed() {
  for (const kernels::FormatInfo& format : kernels::kFormats) {
    const TensorType* type = tensor_type(format.gguf_id);
    if (!type || type->name != format.name || type->block_elements != format.block_elements ||
        type->block_bytes != format.block_bytes)
      return false;
  }
  return true;
}
static_assert(names_what_is_computed(), "a row of formats.inc is missing in tensor_types.inc");

tl::unexpected<Error> bad(std::string message, std::string hint = {}) {
  return fail(ErrorCode::engine_error, std::move(message), std::move(hint));
}

bool multiply(std::uint64_t a, std::uint64_t b, std::uint64_t& out) {
  return !__builtin_mul_overflow(a, b, &out) && out <= kMost;
}
bool add(std::uint64_t a, std::uint64_t b, std::uint64_t& out) {
  return !__builtin_add_overflow(a, b, &out) && out <= kMost;
}

/// Keys and names are printable ASCII, so that they can stand in messages.
bool is_printable(std::string_view text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c <= '~'; });
}

Result<void> check_magic(Cursor& in) {
  TRY(const std::uint32_t magic, in.number<std::uint32_t>("the magic number"));
  if (magic != 0x46554747)
    return bad("it is not a GGUF file (its first four bytes are not \"GGUF\")",
               "Give the path of a model file that ends in .gguf.");
  TRY(const std::uint32_t version, in.number<std::uint32_t>("the version"));
  if (version == 2 || version == 3) return {};
  if (version == 0) return bad("its version is 0, so it is damaged");
  if ((version & 0xffff) == 0)
    return bad("it is a big-endian GGUF file, which this build cannot read",
               "Use the little-endian file.");
  return bad(fmt::format("it is GGUF version {}; versions 2 and 3 can be read", version),
             "Convert the model again with current tools.");
}

Result<ValuePlace> read_value(Cursor& in, const std::string& key) {
  const std::string what = fmt::format("the value of {}", key);
  TRY(const std::uint32_t raw, in.number<std::uint32_t>(what));
  if (raw >= kValueTypes) return bad(fmt::format("{} has the unknown value type {}", key, raw));
  ValuePlace place{static_cast<ValueType>(raw), static_cast<ValueType>(raw)};
  if (place.type == ValueType::array) {
    TRY(const std::uint32_t element, in.number<std::uint32_t>(what));
    TRY(place.count, in.number<std::uint64_t>(what));
    if (element >= kValueTypes)
      return bad(fmt::format("the array {} has the unknown element type {}", key, element));
    place.element = static_cast<ValueType>(element);
    if (place.element == ValueType::array)
      return bad(fmt::format("{} is an array of arrays, which this build does not read", key));
    std::uint64_t least = 0;
    const std::uint64_t size = place.element == ValueType::string ? 8 : value_bytes(place.element);
    if (!multiply(place.count, size, least) || least > in.left())
      return bad(fmt::format("the array {} claims {} elements, but only {} bytes are left", key,
                             place.count, in.left()));
    if (place.count > kMaxElements)
      return bad(fmt::format("the array {} has {} elements; the limit is {}", key, place.count,
                             kMaxElements));
  }
  place.offset = in.offset();
  if (place.element == ValueType::string) {
    for (std::uint64_t i = 0; i < place.count; ++i)
      TRY_VOID(in.skip_string(kMaxStringBytes, what));
  } else if (place.element == ValueType::boolean) {
    for (std::uint64_t i = 0; i < place.count; ++i) {
      TRY(const std::uint8_t value, in.number<std::uint8_t>(what));
      if (value > 1) return bad(fmt::format("{} has a truth value that is neither 0 nor 1", key));
    }
  } else {
    TRY_VOID(in.skip(place.count * value_bytes(place.element), what));
  }
  place.bytes = in.offset() - place.offset;
  return place;
}

Result<void> read_values(Cursor& in, std::uint64_t count, Directory& out) {
  for (std::uint64_t i = 0; i < count; ++i) {
    TRY(std::string key, in.string(kMaxKeyBytes, fmt::format("the key of pair {}", i)));
    if (!is_printable(key))
      return bad(fmt::format("the key of pair {} is empty or not printable ASCII", i));
    TRY(const ValuePlace place, read_value(in, key));
    if (!out.values.emplace(key, place).second)
      return bad(fmt::format("the key {} stands twice", key));
  }
  return {};
}

Result<std::uint64_t> read_alignment(int fd, const Directory& directory) {
  const auto found = directory.values.find("general.alignment");
  if (found == directory.values.end()) return 32;
  if (found->second.type != ValueType::u32)
    return bad("general.alignment is not a 32-bit unsigned number");
  std::uint32_t value = 0;
  TRY_VOID(read_exactly(fd, found->second.offset, std::as_writable_bytes(std::span(&value, 1))));
  if (!std::has_single_bit(value) || value > kMaxAlignment)
    return bad(fmt::format("general.alignment is {}; it must be a power of two up to {}", value,
                           kMaxAlignment));
  return value;
}

/// Size in bytes; refuses zero, negative and overflowing extents and rows that are no whole blocks.
Result<std::uint64_t> tensor_bytes(const std::string& name,
                                   const std::vector<std::uint64_t>& extents,
                                   const TensorType& type) {
  std::uint64_t elements = 1;
  for (const std::uint64_t extent : extents) {
    if (extent == 0 || extent > kMost)
      return bad(
          fmt::format("tensor {} has the extent {}", name, static_cast<std::int64_t>(extent)));
    if (!multiply(elements, extent, elements))
      return bad(fmt::format("the size of tensor {} overflows", name));
  }
  if (extents[0] % type.block_elements != 0)
    return bad(fmt::format(
        "tensor {} has rows of {} elements, which is no multiple of the {} of a {} block", name,
        extents[0], type.block_elements, type.name));
  std::uint64_t bytes = 0;
  if (!multiply(elements / type.block_elements, type.block_bytes, bytes))
    return bad(fmt::format("the size of tensor {} overflows", name));
  return bytes;
}

/// One tensor info; `info.offset` is still relative to the data section.
Result<void> read_info(Cursor& in, std::uint64_t index, TensorInfo& info, const TensorType*& type) {
  TRY(info.name, in.string(kMaxNameBytes, fmt::format("the name of tensor {}", index)));
  if (!is_printable(info.name))
    return bad(fmt::format("the name of tensor {} is empty or not printable ASCII", index));
  const std::string what = fmt::format("the description of tensor {}", info.name);
  TRY(const std::uint32_t dimensions, in.number<std::uint32_t>(what));
  if (dimensions < 1 || dimensions > 4)
    return bad(
        fmt::format("tensor {} has {} dimensions; 1 to 4 are allowed", info.name, dimensions));
  for (std::uint32_t d = 0; d < dimensions; ++d) {
    TRY(const std::uint64_t extent, in.number<std::uint64_t>(what));
    info.extents.push_back(extent);
  }
  TRY(const std::uint32_t id, in.number<std::uint32_t>(what));
  type = tensor_type(id);
  if (!type)
    return bad(
        fmt::format("tensor {} has the type id {}, which names no GGUF type this build knows",
                    info.name, id),
        "Use a file of another type, for example Q4_K_M, Q6_K, Q8_0 or IQ4_XS.");
  TRY(info.offset, in.number<std::uint64_t>(what));
  TRY(info.bytes, tensor_bytes(info.name, info.extents, *type));
  return {};
}

struct Range {
  std::uint64_t begin;
  std::uint64_t end;
  std::string name;
};

Result<void> check_ranges(std::vector<Range> ranges) {
  std::sort(ranges.begin(), ranges.end(),
            [](const Range& a, const Range& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].begin < ranges[i - 1].end)
      return bad(fmt::format("the tensors {} and {} overlap", ranges[i - 1].name, ranges[i].name));
  return {};
}

}  // namespace

Result<Directory> read_directory(int fd, std::uint64_t file_bytes) {
  if (file_bytes < 24)
    return bad(fmt::format("it has only {} bytes, which is too short for a GGUF file", file_bytes),
               "Download it again: it is probably cut short.");
  Cursor in(fd, 0, file_bytes);
  TRY_VOID(check_magic(in));
  TRY(const std::uint64_t tensors, in.number<std::uint64_t>("the tensor count"));
  TRY(const std::uint64_t pairs, in.number<std::uint64_t>("the metadata count"));
  if (tensors > kMaxTensors || tensors > in.left() / kLeastInfo)
    return bad(fmt::format("it claims {} tensors, more than it can hold", tensors));
  if (pairs > kMaxPairs || pairs > in.left() / kLeastPair)
    return bad(fmt::format("it claims {} metadata pairs, more than it can hold", pairs));

  Directory out;
  TRY_VOID(read_values(in, pairs, out));
  TRY(const std::uint64_t alignment, read_alignment(fd, out));

  std::vector<std::pair<TensorInfo, const TensorType*>> infos;
  std::set<std::string, std::less<>> names;
  for (std::uint64_t i = 0; i < tensors; ++i) {
    TensorInfo info;
    const TensorType* type = nullptr;
    TRY_VOID(read_info(in, i, info, type));
    if (!names.insert(info.name).second)
      return bad(fmt::format("the tensor {} stands twice", info.name));
    infos.emplace_back(std::move(info), type);
  }

  const std::uint64_t data = (in.offset() + alignment - 1) / alignment * alignment;
  std::vector<Range> ranges;
  for (auto& [info, type] : infos) {
    if (info.offset % alignment != 0)
      return bad(fmt::format("tensor {} starts at {}, which is not aligned to {}", info.name,
                             info.offset, alignment));
    std::uint64_t end = 0;
    if (!add(info.offset, data, info.offset) || !add(info.offset, info.bytes, end) ||
        end > file_bytes)
      return bad(fmt::format("tensor {} ({} bytes) reaches past the end of the file", info.name,
                             info.bytes),
                 "Download it again: it is probably cut short.");
    ranges.push_back({info.offset, end, info.name});
    if (const auto known = kernels::dtype_of_gguf(type->id)) {
      info.type = *known;
      out.tensors.push_back(std::move(info));
    } else {
      out.foreign.push_back({info.name, type->name, info.bytes});
    }
  }
  TRY_VOID(check_ranges(std::move(ranges)));
  return out;
}

}  // namespace ponder::artifact
