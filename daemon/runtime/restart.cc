#include "daemon/runtime/restart.h"

#include <fmt/core.h>
#include <pwd.h>
#include <unistd.h>

#include <cstdlib>

namespace ponder::daemon {
namespace {

namespace fs = std::filesystem;

bool holds_service(const fs::path& dir) {
  std::error_code ec;
  for (fs::directory_iterator entry(dir, ec), end; !ec && entry != end; entry.increment(ec)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("ponder") && name.ends_with(".service")) return true;
  }
  return false;
}

/// Enabled: some target wants it.
bool is_wanted(const fs::path& units) {
  std::error_code ec;
  for (fs::directory_iterator entry(units, ec), end; !ec && entry != end; entry.increment(ec))
    if (entry->path().extension() == ".wants" && holds_service(entry->path())) return true;
  return false;
}
}  // namespace

ServicePlaces service_places() {
  ServicePlaces places;
  const char* config = std::getenv("XDG_CONFIG_HOME");
  const char* home = std::getenv("HOME");
  if (config && *config == '/')
    places.user_units = fs::path(config) / "systemd" / "user";
  else if (home)
    places.user_units = fs::path(home) / ".config" / "systemd" / "user";
  if (const passwd* entry = ::getpwuid(::geteuid())) places.user = entry->pw_name;
  return places;
}

std::string restart_warning(const ServicePlaces& places) {
  for (const fs::path& dir : places.system_units)
    if (is_wanted(dir)) return {};
  std::error_code ec;
  const bool lingers = !places.user.empty() && fs::exists(places.linger / places.user, ec);
  if (is_wanted(places.user_units))
    return lingers ? std::string()
                   : fmt::format(
                         "the daemon's service ends at logout and is not started at boot; "
                         "`loginctl enable-linger {}` changes that",
                         places.user);
  return "nothing starts the daemon again after a logout or a reboot: the job then waits until a "
         "client or `ponder start` does";
}

}  // namespace ponder::daemon
