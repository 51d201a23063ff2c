#pragma once
// The files a caller may name: regular ones below the workspace (the working directory) or an
// explicitly given root, opened with this process's own rights. Thread-safe; holds no descriptors.
//
// A path is walked from its root component by component with openat and O_NOFOLLOW, so that no
// symlink, no "..", and no directory swapped during the walk leads outside. That is what Linux's
// openat2 does with RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, in calls that every POSIX system has.
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/unique_fd.h"

namespace ponder::mcp {

constexpr std::int64_t kFileBytesMax = 1 << 20;
constexpr std::int64_t kFilesBytesMax = 8 << 20;

struct FileText {
  std::string name;  ///< as the caller wrote it
  std::string text;
};

class Workspace {
 public:
  /// `directory` is the workspace, `roots` are more places to read and write below. All absolute.
  /// A workspace of "/" names jobs but gives no files: a client that starts its servers there
  /// means no project.
  Workspace(std::filesystem::path directory, std::vector<std::filesystem::path> roots);

  const std::string& directory() const { return directory_; }

  /// UTF-8 text files, each at most kFileBytesMax and together at most kFilesBytesMax. The first
  /// that is refused is the Error (bad_request), one sentence.
  Result<std::vector<FileText>> read_files(const std::vector<std::string>& paths) const;

  /// Puts `text` at `path` in one step (a temporary file beside it, then rename): a reader sees
  /// the old file or the whole new one. Replaces a regular file whose content is the beginning of
  /// `text` (an earlier page or state of it), nothing else; makes no directories. The absolute
  /// path that was written.
  Result<std::string> write_file(const std::string& path, const std::string& text) const;

 private:
  struct Place {
    UniqueFd directory;  ///< the directory the file is in
    std::string leaf;
    std::filesystem::path absolute;
  };
  Result<Place> resolve(const std::string& path) const;
  Result<std::string> read_file(const std::string& path) const;

  std::string directory_;
  std::vector<std::filesystem::path> roots_;  ///< each as given and as its real path
};

}  // namespace ponder::mcp
