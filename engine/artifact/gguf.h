#pragma once
// A GGUF v3 (or v2) file opened read-only: typed metadata and a checked tensor directory. Treats
// the file as hostile: every size is checked before use, every refusal is one clear sentence.
// Knows nothing of models. Const after open() and thread-safe.
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
};

class Gguf {
 public:
  /// model_missing for a file that is not there; engine_error ("<file> is not usable: ...") for
  /// one that fails a check.
  static Result<std::unique_ptr<Gguf>> open(const std::filesystem::path& file);
  virtual ~Gguf() = default;

  virtual const std::vector<TensorInfo>& tensors() const = 0;
  virtual const TensorInfo* find(std::string_view name) const = 0;

  /// The tensor's bytes as they are in the file, read into `out` (exactly info.bytes long).
  virtual Result<void> read(const TensorInfo& info, std::span<std::byte> out) const = 0;

  /// Typed metadata; nullopt when absent or of another type (integers of any width that fit).
  virtual std::optional<std::string> string(std::string_view key) const = 0;
  virtual std::optional<std::int64_t> integer(std::string_view key) const = 0;
  virtual std::optional<double> number(std::string_view key) const = 0;
  virtual std::optional<bool> boolean(std::string_view key) const = 0;
  virtual std::optional<std::vector<std::string>> strings(std::string_view key) const = 0;
  virtual std::optional<std::vector<std::int64_t>> integers(std::string_view key) const = 0;

  virtual const std::filesystem::path& path() const = 0;
  virtual std::uint64_t file_bytes() const = 0;
};

}  // namespace ponder::artifact
