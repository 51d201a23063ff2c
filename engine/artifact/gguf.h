#pragma once
// A GGUF v3 (or v2) file opened read-only: typed metadata and a checked tensor directory. Treats
// the file as hostile: every size is checked before use, every refusal is one clear sentence.
// Knows nothing of models. Const after open() and thread-safe. Nothing of the file stays in memory
// but its directory: values and tensors are read (pread) when they are asked for.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "kernels/quant/formats.h"

namespace ponder::artifact {

struct TensorInfo {
  std::string name;
  kernels::DType type;
  std::vector<std::uint64_t> extents;  ///< first = fastest varying = row length; 1..4 of them
  std::uint64_t offset = 0;            ///< from the start of the file
  std::uint64_t bytes = 0;
  std::uint32_t shard = 0;  ///< which file of a split model
};

/// A tensor whose type the format knows and this build cannot compute.
struct ForeignTensor {
  std::string name;
  std::string_view type;  ///< e.g. "IQ2_XXS"; static storage
  std::uint64_t bytes = 0;
};

class Gguf {
 public:
  /// model_missing for a file that is not there; engine_error ("<file> is not usable: ...") for
  /// one that fails a check. Of a split model (NAME-00001-of-0000N.gguf) the first file is given,
  /// and the others are found beside it.
  static Result<std::unique_ptr<Gguf>> open(const std::filesystem::path& file);
  virtual ~Gguf() = default;

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const TensorInfo* find(std::string_view name) const = 0;
  /// Not among tensors(): a model that needs one of them cannot be loaded.
  virtual const std::vector<ForeignTensor>& foreign_tensors() const = 0;

  /// The tensor's bytes as they are in the file, read into `out` (exactly info.bytes long).
  virtual Result<void> read(const TensorInfo& info, std::span<std::byte> out) const = 0;
  /// The same for a part: out.size() bytes from byte `first` of the tensor on.
  virtual Result<void> read_part(const TensorInfo& info, std::uint64_t first,
                                 std::span<std::byte> out) const = 0;

  /// Typed metadata; nullopt when absent or of another type (integers of any width that fit).
  virtual std::optional<std::string> string(std::string_view key) const = 0;
  virtual std::optional<std::int64_t> integer(std::string_view key) const = 0;
  virtual std::optional<double> number(std::string_view key) const = 0;
  virtual std::optional<bool> boolean(std::string_view key) const = 0;
  virtual std::optional<std::vector<std::string>> strings(std::string_view key) const = 0;
  /// Integers of any width that fit; truth values count as 0 and 1.
  virtual std::optional<std::vector<std::int64_t>> integers(std::string_view key) const = 0;
  /// Elements of an array of any type; nullopt when absent or no array.
  virtual std::optional<std::uint64_t> array_length(std::string_view key) const = 0;
  /// Every metadata key, sorted.
  virtual std::vector<std::string> keys() const = 0;

  virtual const std::filesystem::path& path() const = 0;
  virtual std::uint64_t file_bytes() const = 0;  ///< of all shards
};

}  // namespace ponder::artifact
