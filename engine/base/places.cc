#include "engine/base/places.h"

#include <fmt/core.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#if defined(__APPLE__)
#include <mach-o/dyld.h>
#endif

namespace ponder {
namespace fs = std::filesystem;
namespace {

std::string env(const char* name) {
  const char* v = std::getenv(name);
  return v ? v : "";
}

fs::path xdg(const char* variable, const fs::path& fallback) {
  const fs::path dir = env(variable);
  return (dir.is_absolute() ? dir : fallback) / "ponder";  // the XDG specification: else ignored
}

Places in_state_dir(Places p) {
  p.database = p.state_dir / "ponder.db";
  p.lock = p.state_dir / "ponderd.lock";
  p.socket = p.state_dir / "ponderd.sock";
  p.key_file = p.state_dir / "api-key";
  p.logs_dir = p.state_dir / "logs";
  p.stopped_marker = p.state_dir / "stopped";
  p.started_with = p.state_dir / "started-with";
  return p;
}
}  // namespace

Result<Places> find_places(const std::string& home) {
  const std::string chosen = home.empty() ? env("PONDER_HOME") : home;
  Places p;
  if (!chosen.empty()) {
    std::error_code ec;
    fs::path dir = fs::absolute(chosen, ec).lexically_normal();
    if (ec) return fail(ErrorCode::bad_request, "the home directory cannot be resolved");
    if (!dir.has_filename()) dir = dir.parent_path();
    p.explicit_home = true;
    p.config_file = dir / "ponder.toml";
    p.models_dir = dir / "models";
    p.state_dir = dir;
    return in_state_dir(p);
  }
  fs::path user = env("HOME");
  if (!user.is_absolute()) {
    if (const passwd* entry = getpwuid(getuid()); entry && entry->pw_dir) user = entry->pw_dir;
  }
  if (!user.is_absolute())
    return fail(ErrorCode::bad_request, "no home directory: HOME is not set",
                "set HOME, or give --home DIR");
  p.config_file = xdg("XDG_CONFIG_HOME", user / ".config") / "ponder.toml";
  p.models_dir = xdg("XDG_DATA_HOME", user / ".local/share") / "models";
  p.state_dir = xdg("XDG_STATE_HOME", user / ".local/state");
  return in_state_dir(p);
}

Result<void> make_private_dir(const fs::path& dir) {
  if (dir.has_parent_path() && !fs::exists(dir.parent_path())) {
    TRY_VOID(make_private_dir(dir.parent_path()));
  }
  if (::mkdir(dir.c_str(), 0700) == 0) {
    ::chmod(dir.c_str(), 0700);  // whatever the umask took away
    return {};
  }
  if (errno != EEXIST)
    return fail(ErrorCode::storage,
                fmt::format("cannot make {}: {}", dir.string(), std::strerror(errno)));
  struct stat s {};
  if (::stat(dir.c_str(), &s) != 0 || !S_ISDIR(s.st_mode))
    return fail(ErrorCode::storage, fmt::format("{} is not a directory", dir.string()));
  if (s.st_uid != ::geteuid())
    return fail(ErrorCode::storage, fmt::format("{} belongs to another user", dir.string()),
                "choose another --home");
  // Others use such a directory (/tmp): closing it would take it from them.
  if ((s.st_mode & S_ISVTX) != 0)
    return fail(
        ErrorCode::storage, fmt::format("{} is shared with other users", dir.string()),
        fmt::format("choose another --home, such as {}, or chmod 700 it if it is yours alone",
                    (dir / "ponder").string()));
  if ((s.st_mode & 077) != 0 && ::chmod(dir.c_str(), 0700) != 0)
    return fail(ErrorCode::storage, fmt::format("{} is open to other users", dir.string()),
                fmt::format("chmod 700 {}", dir.string()));
  return {};
}

fs::path executable_dir() {
#if defined(__APPLE__)
  char buffer[4096];
  uint32_t size = sizeof buffer;
  if (_NSGetExecutablePath(buffer, &size) != 0) return {};
  std::error_code ec;
  return fs::canonical(buffer, ec).parent_path();
#else
  std::error_code ec;
  return fs::read_symlink("/proc/self/exe", ec).parent_path();
#endif
}

fs::path bundled_model() {
  const fs::path bin = executable_dir();
  for (const char* place : {"../../../models/pebble", "../share/ponder/models/pebble"}) {
    std::error_code ec;
    const fs::path file = fs::weakly_canonical(bin / place / "pebble-q8_0.gguf", ec);
    if (!ec && fs::is_regular_file(file, ec)) return file;
  }
  return {};
}
}  // namespace ponder
