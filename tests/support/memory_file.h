#pragma once
// A file that lives in memory and still has a path, for tests that open thousands of them.
#include <filesystem>
#include <string_view>

#include "engine/base/unique_fd.h"

namespace ponder::testing {

class MemoryFile {
 public:
  /// `size`: of the whole file, zeros after `bytes`; 0: just the bytes.
  explicit MemoryFile(std::string_view bytes, std::size_t size = 0);
  std::filesystem::path path() const;

 private:
  UniqueFd fd_;
};

}  // namespace ponder::testing
