#include "tests/support/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "engine/base/check.h"

namespace ponder::testing {

MemoryFile::MemoryFile(std::string_view bytes, std::size_t size)
    : fd_(::memfd_create("ponder-test", MFD_CLOEXEC)) {
  CHECK(fd_);
  CHECK(::write(fd_.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  if (size != 0) CHECK(::ftruncate(fd_.get(), static_cast<off_t>(size)) == 0);
}

std::filesystem::path MemoryFile::path() const {
  return "/proc/self/fd/" + std::to_string(fd_.get());
}

}  // namespace ponder::testing
