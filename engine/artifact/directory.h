#pragma once
// The head of one GGUF file: where each metadata value lies and the checked list of its tensors.
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/artifact/gguf.h"
#include "engine/artifact/gguf_format.h"
#include "engine/base/error.h"

namespace ponder::artifact {

/// A metadata value stays in the file (vocabularies are megabytes); this is where.
struct ValuePlace {
  ValueType type;
  ValueType element;         ///< of an array; otherwise the same as type
  std::uint64_t count = 1;   ///< elements of an array
  std::uint64_t offset = 0;  ///< of the first byte: a string's length, an array's first element
  std::uint64_t bytes = 0;
};

struct Directory {
  std::map<std::string, ValuePlace, std::less<>> values;
  std::vector<TensorInfo> tensors;     ///< of types this build computes
  std::vector<ForeignTensor> foreign;  ///< of types it does not
};

/// Reads and checks the head of the open file. Allocates in proportion to what is really there:
/// counts and lengths are held against the bytes left before anything is reserved. The error is a
/// clause that completes "<file> is not usable: ...".
Result<Directory> read_directory(int fd, std::uint64_t file_bytes);

}  // namespace ponder::artifact
