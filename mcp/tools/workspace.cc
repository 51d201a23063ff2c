#include "mcp/tools/workspace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "engine/base/ids.h"
#include "engine/base/utf8.h"

namespace ponder::mcp {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Error> refuse(const std::string& path, std::string_view why) {
  return fail(ErrorCode::bad_request, fmt::format("file \"{}\": {}", path, why));
}

std::string reason(int error) {
  if (error == ELOOP) return "it, or a directory on its way, is a symlink, which is not followed";
  if (error == ENOTDIR)
    return "a part of its path is not a directory (or is a symlink, which is not followed)";
  return std::strerror(error);
}

/// `path` relative to `root`, if it lies below it by name.
std::optional<fs::path> below(const fs::path& path, const fs::path& root) {
  const fs::path relative = path.lexically_relative(root);
  if (relative.empty() || relative == "." || *relative.begin() == "..") return std::nullopt;
  return relative;
}

int open_at(int directory, const std::string& name, int flags) {
  int fd = -1;
  do {
    fd = ::openat(directory, name.c_str(), flags | O_NOFOLLOW | O_CLOEXEC);
  } while (fd < 0 && errno == EINTR);
  return fd;
}

/// Whether all that the file `name` holds is the beginning of `text`: then nothing is lost with it.
bool holds_beginning(int directory, const std::string& name, std::string_view text) {
  const UniqueFd fd(open_at(directory, name, O_RDONLY | O_NONBLOCK));
  if (!fd) return false;
  std::string held(text.size() + 1, '\0');
  std::size_t size = 0;
  while (size < held.size()) {
    const ssize_t n = ::read(fd.get(), held.data() + size, held.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  return text.starts_with(std::string_view(held).substr(0, size));
}

bool write_all(int fd, const std::string& text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const ssize_t n = ::write(fd, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}
}  // namespace

Workspace::Workspace(fs::path directory, std::vector<fs::path> roots)
    : directory_(directory.string()) {
  if (directory != "/") roots.insert(roots.begin(), directory);
  for (const fs::path& root : roots) {
    fs::path given = root.lexically_normal();
    if (!given.has_filename() && given != "/") given = given.parent_path();
    roots_.push_back(given);
    std::error_code ec;
    const fs::path real = fs::canonical(given, ec);
    if (!ec && real != given) roots_.push_back(real);
  }
}

Result<Workspace::Place> Workspace::resolve(const std::string& path) const {
  if (path.empty() || path.find('\0') != std::string::npos) return refuse(path, "not a path");
  if (roots_.empty())
    return refuse(path,
                  "the workspace is /, so no files are taken; start ponder-mcp in the "
                  "project's directory or with --root DIR");
  const fs::path absolute = (fs::path(directory_) / path).lexically_normal();
  const fs::path plain = absolute.has_filename() ? absolute : absolute.parent_path();
  if (std::find(roots_.begin(), roots_.end(), plain) != roots_.end())
    return refuse(path, "it is a directory; name the files in it");
  for (const fs::path& root : roots_) {
    const auto relative = below(absolute, root);
    if (!relative) continue;
    // The root itself is trusted and may be reached through symlinks; nothing below it may.
    Place place{UniqueFd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)), {}, absolute};
    if (!place.directory) return refuse(path, std::strerror(errno));
    const std::vector<fs::path> parts(relative->begin(), relative->end());
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      place.directory.reset(
          open_at(place.directory.get(), parts[i].string(), O_RDONLY | O_DIRECTORY));
      if (!place.directory) return refuse(path, reason(errno));
    }
    place.leaf = parts.back().string();
    if (place.leaf.empty() || place.leaf == "." || place.leaf == "..")
      return refuse(path, "it is a directory");
    return place;
  }
  std::vector<std::string> names;
  for (const fs::path& root : roots_)
    names.push_back(root.string());
  return refuse(path, fmt::format("it lies outside {}; only files below the workspace or a --root "
                                  "of ponder-mcp are taken",
                                  fmt::join(names, ", ")));
}

Result<std::string> Workspace::read_file(const std::string& path) const {
  TRY(const Place place, resolve(path));
  // O_NONBLOCK: opening a named pipe must not wait for its writer.
  const UniqueFd fd(open_at(place.directory.get(), place.leaf, O_RDONLY | O_NONBLOCK));
  if (!fd) return refuse(path, reason(errno));
  struct stat s {};
  if (::fstat(fd.get(), &s) != 0) return refuse(path, std::strerror(errno));
  if (S_ISDIR(s.st_mode)) return refuse(path, "it is a directory; name the files in it");
  if (!S_ISREG(s.st_mode)) return refuse(path, "it is not a regular file");
  const std::string too_large = fmt::format(
      "it is larger than {} bytes; pass the part that matters as context", kFileBytesMax);
  if (s.st_size > kFileBytesMax) return refuse(path, too_large);
  std::string text(static_cast<std::size_t>(kFileBytesMax) + 1, '\0');
  std::size_t size = 0;
  while (size < text.size()) {
    const ssize_t n = ::read(fd.get(), text.data() + size, text.size() - size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return refuse(path, std::strerror(errno));
    if (n == 0) break;
    size += static_cast<std::size_t>(n);
  }
  if (size > static_cast<std::size_t>(kFileBytesMax)) return refuse(path, too_large);
  text.resize(size);
  text.shrink_to_fit();
  if (!is_valid_utf8(text))
    return refuse(path, "it is not UTF-8 text; convert it, or pass its content as context");
  return text;
}

Result<std::vector<FileText>> Workspace::read_files(const std::vector<std::string>& paths) const {
  std::vector<FileText> files;
  std::int64_t total = 0;
  for (const std::string& path : paths) {
    TRY(std::string text, read_file(path));
    total += static_cast<std::int64_t>(text.size());
    if (total > kFilesBytesMax)
      return refuse(path, fmt::format("the files together are larger than {} bytes; pass fewer",
                                      kFilesBytesMax));
    files.push_back({path, std::move(text)});
  }
  return files;
}

Result<std::string> Workspace::write_file(const std::string& path, const std::string& text) const {
  TRY(const Place place, resolve(path));
  const int directory = place.directory.get();
  struct stat s {};
  if (::fstatat(directory, place.leaf.c_str(), &s, AT_SYMLINK_NOFOLLOW) == 0) {
    if (S_ISDIR(s.st_mode)) return refuse(path, "it is a directory and is not overwritten");
    if (S_ISLNK(s.st_mode)) return refuse(path, "it is a symlink, which is not written through");
    if (!S_ISREG(s.st_mode)) return refuse(path, "it is not a regular file and is not overwritten");
    if (!holds_beginning(directory, place.leaf, text))
      return refuse(path,
                    "it exists and holds something else, and is not overwritten; choose another "
                    "name, or remove it first");
  }
  const std::string temporary = fmt::format(".ponder-{}.part", random_hex(8));
  int raw = -1;
  do {
    raw = ::openat(directory, temporary.c_str(),
                   O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  } while (raw < 0 && errno == EINTR);
  const UniqueFd fd(raw);
  if (!fd) return refuse(path, fmt::format("cannot write beside it: {}", std::strerror(errno)));
  // rename replaces a symlink that came in the meantime, it does not follow it.
  if (!write_all(fd.get(), text) || ::fsync(fd.get()) != 0 ||
      ::renameat(directory, temporary.c_str(), directory, place.leaf.c_str()) != 0) {
    const int error = errno;
    ::unlinkat(directory, temporary.c_str(), 0);
    return refuse(path, fmt::format("cannot write it: {}", std::strerror(error)));
  }
  return place.absolute.string();
}

}  // namespace ponder::mcp
