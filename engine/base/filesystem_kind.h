#pragma once
// On what kind of file system a path lies, as far as it matters to a database: on some of them
// locks and shared memory do not hold between processes (a database there gets damaged), and one
// is gone with the power. Linux's statfs(2); elsewhere every kind is unknown. Thread-safe.
#include <cstdint>
#include <filesystem>
#include <string_view>

namespace ponder {

struct FilesystemKind {
  std::string_view name;   ///< e.g. "NFS"; empty: an ordinary one, or unknown
  bool locks_hold = true;  ///< false: a network, a Windows drive or a program behind it
  bool in_memory = false;  ///< what lies there is gone after a restart of the machine
};

/// By statfs's f_type (the lower 32 bits; some machines extend its sign).
FilesystemKind filesystem_kind(std::uint64_t f_type);
/// Of an existing path. What cannot be looked at is unknown.
FilesystemKind filesystem_kind_of(const std::filesystem::path& path);

}  // namespace ponder
