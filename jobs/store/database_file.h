#pragma once
// The database as files: what is done to them before SQLite has them open, and never while it has
// (closing any descriptor of an open database would drop SQLite's POSIX locks). Errors are
// `storage`. No SQL. What is read of ponder.db and its log is read through SQLite's own file layer.
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace ponder::jobs {

/// What mends a file of the database that cannot be read or written.
constexpr const char* kMendDisk = "check the disk, and that the state directory can be written";

/// `file`, its log and the index of its log, as SQLite names them.
std::filesystem::path log_of(const std::filesystem::path& file);
std::filesystem::path log_index_of(const std::filesystem::path& file);

/// The file's path without links in its directory, which must exist and lie on a file system that
/// keeps locks.
Result<std::filesystem::path> usable_path(const std::filesystem::path& file);

/// Makes the file with mode 0600 whatever the umask, or checks the one that is there: a plain file
/// of ours that others cannot read.
Result<void> prepare_file(const std::filesystem::path& file);

/// The bytes of a database or a log, through SQLite's file layer.
class RawFile {
 public:
  enum class Kind { database, log };
  RawFile(const std::filesystem::path& file, Kind kind);
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;
  ~RawFile();

  bool is_open() const { return handle_ != nullptr; }  ///< false: it is not there, or unreadable
  std::int64_t size() const;  ///< 0: it is not open; -1: the disk does not tell
  /// False: there are not as many.
  bool read(std::int64_t offset, void* into, std::size_t bytes) const;

 private:
  void* handle_ = nullptr;  // sqlite3_file
  const char* name_ = nullptr;
};

/// Its bytes, or 0 if it is not there. By stat: nothing is opened.
std::int64_t file_bytes(const std::filesystem::path& file);

/// The bytes of a file that nobody has open, into a new one (0600).
Result<void> copy_private(const std::filesystem::path& from, const std::filesystem::path& to);
Result<void> sync_file(const std::filesystem::path& file);
/// Makes renames in a directory durable.
Result<void> sync_directory(const std::filesystem::path& directory);
/// rename(2), as an error that names both.
Result<void> rename_file(const std::filesystem::path& from, const std::filesystem::path& to);
/// Writes a small new file (0600) and syncs it.
Result<void> write_private(const std::filesystem::path& file, std::string_view text);

}  // namespace ponder::jobs
