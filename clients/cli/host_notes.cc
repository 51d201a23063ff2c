#include "clients/cli/host_notes.h"

#include <fmt/core.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <fstream>

namespace ponder::cli {
namespace {
namespace fs = std::filesystem;

bool is_wsl(const fs::path& kernel_release) {
  std::ifstream in(kernel_release);
  std::string line;
  std::getline(in, line);
  std::transform(line.begin(), line.end(), line.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return line.find("microsoft") != std::string::npos;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}
}  // namespace

HostFiles host_files() {
  HostFiles files;
  const std::string config = environment("XDG_CONFIG_HOME");
  const fs::path base =
      config.starts_with('/') ? fs::path(config) : fs::path(environment("HOME")) / ".config";
  files.user_unit = base / "systemd/user/ponder.service";
  if (const passwd* entry = ::getpwuid(::geteuid())) files.user = entry->pw_name;
  files.wsl_distribution = environment("WSL_DISTRO_NAME");
  return files;
}

std::vector<HostNote> host_notes(const HostFiles& files) {
  std::vector<HostNote> notes;
  std::error_code ec;
  // microsoft/WSL#9667: a distribution stops some seconds after its last terminal, whatever runs.
  if (is_wsl(files.kernel_release))
    notes.push_back(
        {"wsl",
         "this is WSL: the distribution, and the daemon in it, stops soon after its last terminal "
         "has closed; jobs go on at the next start",
         fmt::format("keep a terminal open, or let Windows run at logon: wsl.exe{} --exec sleep "
                     "infinity",
                     files.wsl_distribution.empty() ? "" : " -d " + files.wsl_distribution)});
  const bool system_service =
      std::any_of(files.system_units.begin(), files.system_units.end(),
                  [&ec](const fs::path& unit) { return fs::exists(unit, ec); });
  const bool matters = !files.user.empty() && files.user != "root" && !system_service &&
                       fs::exists(files.systemd, ec);
  if (matters && !fs::exists(files.linger / files.user, ec))
    notes.push_back({"linger",
                     fs::exists(files.user_unit, ec)
                         ? "the daemon's service ends at logout and is not started at boot"
                         : "at logout the system may end the daemon; its jobs wait until a client "
                           "or `ponder start` starts it again",
                     "loginctl enable-linger " + files.user});
  return notes;
}

}  // namespace ponder::cli
