#pragma once
// What about this machine ends a daemon behind its owner's back. Reads files only.
#include <filesystem>
#include <string>
#include <vector>

namespace ponder::cli {

/// Where the kernel and systemd say what they are. Tests name their own.
struct HostFiles {
  std::filesystem::path kernel_release = "/proc/sys/kernel/osrelease";
  std::filesystem::path systemd = "/run/systemd/system";  ///< there where systemd runs
  std::filesystem::path linger = "/var/lib/systemd/linger";
  std::vector<std::filesystem::path> system_units = {"/etc/systemd/system/ponder.service",
                                                     "/usr/lib/systemd/system/ponder.service"};
  std::filesystem::path user_unit;  ///< ~/.config/systemd/user/ponder.service
  std::string user;                 ///< empty or root: lingering does not matter
  std::string wsl_distribution;     ///< WSL_DISTRO_NAME, may be empty
};
HostFiles host_files();

struct HostNote {
  std::string name;
  std::string message;
  std::string hint;
};
std::vector<HostNote> host_notes(const HostFiles& files);

}  // namespace ponder::cli
