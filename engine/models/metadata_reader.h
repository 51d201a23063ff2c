#pragma once
// Reading the numbers of a model from its file's metadata: every one bounded, so that sizes derived
// from them cannot overflow and no kernel meets a shape it cannot do. Errors name the key at fault
// and its value.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/artifact/gguf.h"
#include "engine/base/error.h"
#include "engine/models/decoder.h"

namespace ponder::models {

/// engine_error: the file cannot be computed.
tl::unexpected<Error> unusable(std::string message, std::string hint = {});

class MetadataReader {
 public:
  MetadataReader(const artifact::Gguf& file, std::string_view architecture)
      : file_(file), prefix_(std::string(architecture) + '.') {}

  const artifact::Gguf& file() const { return file_; }
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }
  Result<std::int64_t> integer(std::string_view name, std::int64_t min, std::int64_t max) const;
  Result<std::int64_t> integer_or(std::string_view name, std::int64_t fallback, std::int64_t min,
                                  std::int64_t max) const;
  Result<double> number(std::string_view name, double min, double max) const;
  Result<double> number_or(std::string_view name, double fallback, double min, double max) const;
  /// One number, or an array with one a layer in which layers of the other kind hold 0 and all
  /// others agree (files made by Ollama).
  Result<std::int64_t> integer_per_layer(std::string_view name, std::int64_t max) const;
  /// No rope scaling that the metadata could ask for is computed.
  Result<void> no_rope_scaling() const;

  // Parts of a configuration that architectures share.
  /// nextn, hidden, n_ctx_train, eps; `layers` gets its length, all attention and dense.
  Result<void> read_sizes(DecoderConfig& config) const;
  /// heads, kv_heads, head_dim (by default hidden / heads), rot, theta.
  Result<void> read_attention(DecoderConfig& config) const;
  /// vocab and tied, from the tensors; the tokenizer's arrays must fit.
  Result<void> read_vocabulary(DecoderConfig& config) const;

 private:
  const artifact::Gguf& file_;
  std::string prefix_;
};

}  // namespace ponder::models
