#include "daemon/runtime/api_key.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/ids.h"
#include "engine/base/log.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {
namespace {

constexpr std::size_t kLeastCharacters = 32;  // 128 bits in hex

tl::unexpected<Error> refuse(const std::filesystem::path& file, std::string_view why) {
  return fail(ErrorCode::storage, fmt::format("{}: {}", file.string(), why),
              "remove the file; the next start makes a new key");
}

Result<std::string> read_key(int fd, const std::filesystem::path& file) {
  struct stat s {};
  if (::fstat(fd, &s) != 0 || !S_ISREG(s.st_mode)) return refuse(file, "not a regular file");
  if (s.st_uid != ::geteuid()) return refuse(file, "belongs to another user");
  if ((s.st_mode & 077) != 0) {
    log_warn("the api-key file was open to other users and has been closed to them");
    if (::fchmod(fd, 0600) != 0) return refuse(file, "is open to other users");
  }
  char text[4096];
  const ssize_t n = ::read(fd, text, sizeof text);
  std::string key(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  while (!key.empty() && std::strchr(" \t\r\n", key.back()))
    key.pop_back();
  if (key.size() < kLeastCharacters) return refuse(file, "holds no key of at least 32 characters");
  for (const char c : key)
    if (c <= ' ' || c > '~') return refuse(file, "holds bytes that a header cannot carry");
  return key;
}

/// Written beside and renamed, so that a crash leaves no half key.
Result<std::string> make_key(const std::filesystem::path& file) {
  const std::string key = random_hex(32);
  const std::string beside = fmt::format("{}.{}", file.string(), random_hex(4));
  UniqueFd fd(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = key + "\n";
  if (!fd || ::fchmod(fd.get(), 0600) != 0 ||
      ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::fsync(fd.get()) != 0 || ::rename(beside.c_str(), file.c_str()) != 0) {
    const int problem = errno;
    ::unlink(beside.c_str());
    return refuse(file, fmt::format("cannot be made: {}", std::strerror(problem)));
  }
  return key;
}
}  // namespace

Result<std::string> load_or_make_api_key(const std::filesystem::path& file) {
  UniqueFd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (fd) return read_key(fd.get(), file);
  if (errno != ENOENT) return refuse(file, std::strerror(errno));
  return make_key(file);
}

}  // namespace ponder::daemon
