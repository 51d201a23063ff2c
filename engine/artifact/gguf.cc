#include "engine/artifact/gguf.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "engine/artifact/cursor.h"
#include "engine/artifact/directory.h"
#include "engine/base/unique_fd.h"

namespace ponder::artifact {
namespace {

struct Shard {
  UniqueFd fd;
  std::uint64_t bytes = 0;
};

Error unusable(const std::filesystem::path& file, Error cause) {
  if (cause.message.ends_with(".")) cause.message.pop_back();
  cause.message = fmt::format("{} is not usable: {}.", file.string(), cause.message);
  return cause;
}

Result<Shard> open_shard(const std::filesystem::path& file) {
  // O_NONBLOCK: a FIFO must be refused below, not waited for
  Shard shard{UniqueFd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (!shard.fd) {
    const int error = errno;
    if (error == ENOENT || error == ENOTDIR)
      return fail(ErrorCode::model_missing,
                  fmt::format("There is no model file {}.", file.string()),
                  "Check the path: a model is a file that ends in .gguf.");
    return fail(ErrorCode::engine_error,
                fmt::format("{} cannot be opened: {}.", file.string(), std::strerror(error)));
  }
  struct stat info {};
  if (::fstat(shard.fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
    return fail(ErrorCode::engine_error, fmt::format("{} is not a regular file.", file.string()),
                "Give the path of a model file that ends in .gguf.");
  shard.bytes = static_cast<std::uint64_t>(info.st_size);
  return shard;
}

template <class T>
T from_bytes(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

std::optional<std::int64_t> to_integer(ValueType type, const std::byte* at) {
  switch (type) {
    case ValueType::u8:
      return from_bytes<std::uint8_t>(at);
    case ValueType::i8:
      return from_bytes<std::int8_t>(at);
    case ValueType::u16:
      return from_bytes<std::uint16_t>(at);
    case ValueType::i16:
      return from_bytes<std::int16_t>(at);
    case ValueType::u32:
      return from_bytes<std::uint32_t>(at);
    case ValueType::i32:
      return from_bytes<std::int32_t>(at);
    case ValueType::i64:
      return from_bytes<std::int64_t>(at);
    case ValueType::u64: {
      const auto value = from_bytes<std::uint64_t>(at);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

class GgufFile final : public Gguf {
 public:
  GgufFile(std::filesystem::path path, Shard first, Directory directory)
      : path_(std::move(path)), values_(std::move(directory.values)) {
    bytes_ = first.bytes;
    add_tensors(directory, 0);
    shards_.push_back(std::move(first));
  }

  /// The other files of a split model; a clause on failure.
  Result<void> open_shards();
  /// The name index, once all shards are there; refuses a name that stands in two of them.
  Result<void> index();

  const std::vector<TensorInfo>& tensors() const override { return tensors_; }
  const std::vector<ForeignTensor>& foreign_tensors() const override { return foreign_; }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? nullptr : &tensors_[found->second];
  }

  Result<void> read(const TensorInfo& info, std::span<std::byte> out) const override {
    if (out.size() != info.bytes)
      return fail(ErrorCode::internal, fmt::format("The buffer for tensor {} has {} bytes, not {}.",
                                                   info.name, out.size(), info.bytes));
    return read_part(info, 0, out);
  }
  Result<void> read_part(const TensorInfo& info, std::uint64_t first,
                         std::span<std::byte> out) const override {
    if (info.shard >= shards_.size() || first > info.bytes || out.size() > info.bytes - first)
      return fail(ErrorCode::internal, fmt::format("Bytes {} to {} are not inside tensor {}.",
                                                   first, first + out.size(), info.name));
    auto done = read_exactly(shards_[info.shard].fd.get(), info.offset + first, out);
    if (!done) return fail(unusable(path_, std::move(done).error()));
    return {};
  }

  std::optional<std::string> string(std::string_view key) const override {
    const ValuePlace* place = scalar(key);
    if (!place || place->type != ValueType::string) return std::nullopt;
    Cursor in(fd(), place->offset, place->offset + place->bytes);
    auto text = in.string(kMaxStringBytes, key);
    if (!text) return std::nullopt;
    return std::move(*text);
  }
  std::optional<std::int64_t> integer(std::string_view key) const override {
    std::byte raw[8];
    const ValuePlace* place = scalar(key);
    if (!place || !read_scalar(*place, raw)) return std::nullopt;
    return to_integer(place->type, raw);
  }
  std::optional<double> number(std::string_view key) const override {
    std::byte raw[8];
    const ValuePlace* place = scalar(key);
    if (!place || !read_scalar(*place, raw)) return std::nullopt;
    double value = 0;
    if (place->type == ValueType::f32)
      value = static_cast<double>(from_bytes<float>(raw));
    else if (place->type == ValueType::f64)
      value = from_bytes<double>(raw);
    else if (const auto whole = to_integer(place->type, raw))
      value = static_cast<double>(*whole);
    else
      return std::nullopt;
    if (!std::isfinite(value)) return std::nullopt;
    return value;
  }
  std::optional<bool> boolean(std::string_view key) const override {
    std::byte raw[8];
    const ValuePlace* place = scalar(key);
    if (!place || place->type != ValueType::boolean || !read_scalar(*place, raw))
      return std::nullopt;
    return raw[0] != std::byte{0};
  }
  std::optional<std::vector<std::string>> strings(std::string_view key) const override {
    const ValuePlace* place = array(key);
    if (!place || place->element != ValueType::string) return std::nullopt;
    Cursor in(fd(), place->offset, place->offset + place->bytes);
    std::vector<std::string> out;
    out.reserve(place->count);
    for (std::uint64_t i = 0; i < place->count; ++i) {
      auto text = in.string(kMaxStringBytes, key);
      if (!text) return std::nullopt;
      out.push_back(std::move(*text));
    }
    return out;
  }
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const override {
    const ValuePlace* place = array(key);
    if (!place || place->element == ValueType::string) return std::nullopt;
    std::vector<std::byte> raw(place->bytes);
    if (!read_exactly(fd(), place->offset, raw)) return std::nullopt;
    const ValueType type = place->element == ValueType::boolean ? ValueType::u8 : place->element;
    std::vector<std::int64_t> out;
    out.reserve(place->count);
    for (std::uint64_t i = 0; i < place->count; ++i) {
      const auto value = to_integer(type, raw.data() + i * value_bytes(type));
      if (!value) return std::nullopt;
      out.push_back(*value);
    }
    return out;
  }
  std::optional<std::uint64_t> array_length(std::string_view key) const override {
    const ValuePlace* place = array(key);
    return place ? std::optional(place->count) : std::nullopt;
  }
  std::vector<std::string> keys() const override {
    std::vector<std::string> out;
    for (const auto& [key, place] : values_)
      out.push_back(key);
    return out;
  }

  const std::filesystem::path& path() const override { return path_; }
  std::uint64_t file_bytes() const override { return bytes_; }

 private:
  int fd() const { return shards_.front().fd.get(); }
  const ValuePlace* find_value(std::string_view key) const {
    const auto found = values_.find(key);
    return found == values_.end() ? nullptr : &found->second;
  }
  const ValuePlace* scalar(std::string_view key) const {
    const ValuePlace* place = find_value(key);
    return place && place->type != ValueType::array ? place : nullptr;
  }
  const ValuePlace* array(std::string_view key) const {
    const ValuePlace* place = find_value(key);
    return place && place->type == ValueType::array ? place : nullptr;
  }
  bool read_scalar(const ValuePlace& place, std::span<std::byte, 8> raw) const {
    return place.type != ValueType::string &&
           read_exactly(fd(), place.offset, raw.first(place.bytes)).has_value();
  }
  void add_tensors(Directory& directory, std::uint32_t shard) {
    for (TensorInfo& info : directory.tensors) {
      info.shard = shard;
      tensors_.push_back(std::move(info));
    }
    for (ForeignTensor& tensor : directory.foreign)
      foreign_.push_back(std::move(tensor));
  }

  std::filesystem::path path_;
  std::map<std::string, ValuePlace, std::less<>> values_;  ///< of the first shard
  std::vector<Shard> shards_;
  std::uint64_t bytes_ = 0;
  std::vector<TensorInfo> tensors_;
  std::vector<ForeignTensor> foreign_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  ///< views of tensors_'s names
};

Result<void> GgufFile::open_shards() {
  const auto count = integer("split.count");
  if (!count || *count <= 1) return {};
  if (*count > static_cast<std::int64_t>(kMaxShards))
    return fail(ErrorCode::engine_error,
                fmt::format("it claims to be split into {} files", *count));
  if (const auto number = integer("split.no"); !number || *number != 0)
    return fail(ErrorCode::engine_error, fmt::format("it is not the first of its {} files", *count),
                "Open the file whose name ends in -00001-of-000NN.gguf.");
  const std::string ending = fmt::format("-00001-of-{:05}.gguf", *count);
  const std::string name = path_.filename().string();
  if (!name.ends_with(ending))
    return fail(
        ErrorCode::engine_error,
        fmt::format("it is split into {} files and its name does not end in {}", *count, ending),
        "Keep the names that the files were published with.");
  for (std::int64_t i = 1; i < *count; ++i) {
    const std::filesystem::path path =
        path_.parent_path() / fmt::format("{}-{:05}-of-{:05}.gguf",
                                          name.substr(0, name.size() - ending.size()), i + 1,
                                          *count);
    TRY(Shard shard, open_shard(path));
    TRY(Directory directory, read_directory(shard.fd.get(), shard.bytes));
    GgufFile part(path, std::move(shard), Directory{std::move(directory.values), {}, {}});
    if (part.integer("split.no") != i || part.integer("split.count") != *count)
      return fail(ErrorCode::engine_error,
                  fmt::format("{} is not part {} of {} of it", path.string(), i + 1, *count));
    add_tensors(directory, static_cast<std::uint32_t>(i));
    bytes_ += part.bytes_;
    shards_.push_back(std::move(part.shards_.front()));
  }
  const auto total = integer("split.tensors.count");
  if (total && *total != static_cast<std::int64_t>(tensors_.size() + foreign_.size()))
    return fail(ErrorCode::engine_error,
                fmt::format("its {} files hold {} tensors instead of {}", *count,
                            tensors_.size() + foreign_.size(), *total));
  return {};
}

Result<void> GgufFile::index() {
  for (std::size_t i = 0; i < tensors_.size(); ++i)
    if (!by_name_.emplace(tensors_[i].name, i).second)
      return fail(ErrorCode::engine_error,
                  fmt::format("the tensor {} stands in two of its files", tensors_[i].name));
  return {};
}

}  // namespace

Result<std::unique_ptr<Gguf>> Gguf::open(const std::filesystem::path& file) {
  TRY(Shard shard, open_shard(file));
  auto directory = read_directory(shard.fd.get(), shard.bytes);
  if (!directory) return fail(unusable(file, std::move(directory).error()));
  auto out = std::make_unique<GgufFile>(file, std::move(shard), std::move(*directory));
  auto ready = out->open_shards();
  if (ready) ready = out->index();
  if (!ready) return fail(unusable(file, std::move(ready).error()));
  return std::unique_ptr<Gguf>(std::move(out));
}

}  // namespace ponder::artifact
