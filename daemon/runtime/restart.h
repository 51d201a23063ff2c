#pragma once
// Whether anything starts the daemon again after a logout or a reboot.
#include <filesystem>
#include <string>
#include <vector>

namespace ponder::daemon {

/// Where systemd keeps what it reads. Tests name their own.
struct ServicePlaces {
  std::vector<std::filesystem::path> system_units = {
      "/etc/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system",
      "/lib/systemd/system"};
  std::filesystem::path user_units;  ///< ~/.config/systemd/user
  std::filesystem::path linger = "/var/lib/systemd/linger";
  std::string user;
};
ServicePlaces service_places();

/// Empty where a system service, or an enabled user service with lingering, brings it back; else a
/// sentence that says what would be needed. Services are named ponder*.service.
std::string restart_warning(const ServicePlaces& places);

}  // namespace ponder::daemon
