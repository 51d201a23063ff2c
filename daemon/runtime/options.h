#pragma once
// The command line of ponderd.
#include <optional>
#include <string>

#include "daemon/config/config.h"

namespace ponder::daemon {

struct Options {
  std::string home;
  std::string config_file;  ///< empty: the one of the home
  bool detach = false;
  bool print_config = false;
  bool check_config = false;
  bool check_database = false;
  FlagValues flags;  ///< those that are settings
};

/// Reads argv. On --help, --version or a usage error everything has been printed and the exit code
/// is returned instead.
struct ParsedOptions {
  Options options;
  std::optional<int> exit_code;
};
ParsedOptions parse_options(int argc, char** argv, const std::string& version_line);

}  // namespace ponder::daemon
