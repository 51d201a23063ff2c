#pragma once
// The architectures this build computes. Adding one is a file that reads its metadata into a
// DecoderConfig, and a line in registry.cc.
#include <memory>
#include <string>
#include <vector>

#include "engine/models/decoder.h"
#include "engine/models/model.h"

namespace ponder::models {

struct Architecture {
  std::string_view name;  ///< general.architecture
  /// Reads and checks the metadata. The error names the key at fault and its value.
  Result<DecoderConfig> (*read_config)(const artifact::Gguf&);
};

extern const Architecture kQwen35;
extern const Architecture kQwen35Moe;
extern const Architecture kQwen3;
extern const Architecture kQwen3Moe;
extern const Architecture kLlama;

/// Resolves the defaults of `options` against what the file was trained for; refuses what cannot
/// be.
Result<LoadOptions> resolve(const LoadOptions& options, std::int64_t n_ctx_train);

/// What an Arena of `bytes` takes from the machine: whole pages, and 2 MiB ones from 2 MiB on.
std::uint64_t arena_bytes(std::uint64_t bytes);

/// out_of_memory, with the numbers, when `need` is more than what is available.
Result<void> check_memory(const MemoryNeed& need);

}  // namespace ponder::models
