#include "jobs/store/database_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "engine/base/filesystem_kind.h"
#include "engine/base/unique_fd.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Error> cannot(std::string_view what, const fs::path& file) {
  const int error = errno;
  Error out{ErrorCode::storage,
            fmt::format("cannot {} {}: {}", what, file.string(), std::strerror(error))};
  out.hint = error == ENOSPC || error == EDQUOT ? "free some disk space"
                                                : "make the state directory writable for this user";
  return fail(std::move(out));
}

Result<void> write_all(int fd, std::string_view bytes, const fs::path& file) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return cannot("write", file);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

UniqueFd create_private(const fs::path& file) {
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd && ::fchmod(fd.get(), 0600) != 0) fd.reset();
  return fd;
}
}  // namespace

fs::path log_of(const fs::path& file) {
  return file.string() + "-wal";
}
fs::path log_index_of(const fs::path& file) {
  return file.string() + "-shm";
}

Result<fs::path> usable_path(const fs::path& file) {
  std::error_code ec;
  // SQLite refuses a link anywhere in the path; only one in the last part is a trap.
  const fs::path directory = fs::canonical(file.parent_path(), ec);
  if (ec)
    return fail(ErrorCode::storage,
                fmt::format("the directory {} cannot be used: {}", file.parent_path().string(),
                            ec.message()),
                "make it a directory of yours, or choose another --home");
  const FilesystemKind kind = filesystem_kind_of(directory);
  if (!kind.locks_hold)
    return fail(ErrorCode::storage,
                fmt::format("{} is on {}, where a database's locks do not hold", directory.string(),
                            kind.name),
                "choose a --home on a local disk, for example ~/.local/state/ponder inside Linux");
  return directory / file.filename();
}

Result<void> prepare_file(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd) {
    if (::fchmod(fd.get(), 0600) != 0) return cannot("protect", file);
    return {};
  }
  if (errno != EEXIST) return cannot("make", file);
  struct stat s {};
  if (::lstat(file.c_str(), &s) != 0 || !S_ISREG(s.st_mode))
    return fail(ErrorCode::storage, fmt::format("{} is not a plain file", file.string()),
                "move it aside; a link to the database is not followed");
  if (s.st_uid != ::geteuid())
    return fail(ErrorCode::storage, fmt::format("{} belongs to another user", file.string()),
                "choose another --home, or give the file to this user");
  if ((s.st_mode & 077) != 0 && ::chmod(file.c_str(), 0600) != 0)
    return fail(ErrorCode::storage, fmt::format("{} is open to other users", file.string()),
                fmt::format("chmod 600 {}", file.string()));
  return {};
}

RawFile::RawFile(const fs::path& file, Kind kind) {
  sqlite3_vfs* vfs = sqlite3_vfs_find(nullptr);
  // The layer may look behind the name for parameters: it takes no plain string.
  name_ = sqlite3_create_filename(file.c_str(), "", "", 0, nullptr);
  auto* handle =
      static_cast<sqlite3_file*>(std::calloc(1, static_cast<std::size_t>(vfs->szOsFile)));
  if (!name_ || !handle) {
    std::free(handle);
    return;
  }
  // As a log it would be refused where its database is missing.
  const int flags =
      SQLITE_OPEN_READONLY | (kind == Kind::log ? SQLITE_OPEN_SUPER_JOURNAL : SQLITE_OPEN_MAIN_DB);
  if (vfs->xOpen(vfs, name_, handle, flags, nullptr) == SQLITE_OK) {
    handle_ = handle;
    return;
  }
  if (handle->pMethods) handle->pMethods->xClose(handle);
  std::free(handle);
}

RawFile::~RawFile() {
  auto* handle = static_cast<sqlite3_file*>(handle_);
  if (handle) handle->pMethods->xClose(handle);
  std::free(handle);
  sqlite3_free_filename(const_cast<char*>(name_));
}

std::int64_t RawFile::size() const {
  auto* handle = static_cast<sqlite3_file*>(handle_);
  sqlite3_int64 bytes = 0;
  if (handle && handle->pMethods->xFileSize(handle, &bytes) != SQLITE_OK) return -1;
  return bytes;
}

bool RawFile::read(std::int64_t offset, void* into, std::size_t bytes) const {
  auto* handle = static_cast<sqlite3_file*>(handle_);
  return handle &&
         handle->pMethods->xRead(handle, into, static_cast<int>(bytes), offset) == SQLITE_OK;
}

std::int64_t file_bytes(const fs::path& file) {
  struct stat s {};
  return ::lstat(file.c_str(), &s) == 0 ? static_cast<std::int64_t>(s.st_size) : 0;
}

Result<void> copy_private(const fs::path& from, const fs::path& to) {
  const UniqueFd in(::open(from.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!in) return cannot("read", from);
  const UniqueFd out = create_private(to);
  if (!out) return cannot("make", to);
  std::array<char, 1 << 16> buffer{};
  for (;;) {
    const ssize_t n = ::read(in.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot("read", from);
    if (n == 0) return {};
    TRY_VOID(write_all(out.get(), {buffer.data(), static_cast<std::size_t>(n)}, to));
  }
}

Result<void> sync_file(const fs::path& file) {
  const UniqueFd fd(::open(file.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return cannot("sync", file);
  return {};
}

Result<void> sync_directory(const fs::path& directory) {
  const UniqueFd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) return cannot("sync", directory);
  return {};
}

Result<void> rename_file(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    return cannot(fmt::format("rename {} to", from.filename().string()), to);
  return {};
}

Result<void> write_private(const fs::path& file, std::string_view text) {
  const UniqueFd out = create_private(file);
  if (!out) return cannot("make", file);
  TRY_VOID(write_all(out.get(), text, file));
  if (::fsync(out.get()) != 0) return cannot("sync", file);
  return {};
}

}  // namespace ponder::jobs
