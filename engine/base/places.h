#pragma once
// Where Ponder keeps its things (the XDG directories, or all in one with --home / PONDER_HOME).
// Pure but for reading the environment; nothing is created except by make_private_dir.
#include <filesystem>
#include <string>

#include "engine/base/error.h"

namespace ponder {

struct Places {
  std::filesystem::path config_file;     ///< ponder.toml
  std::filesystem::path models_dir;      ///< models/
  std::filesystem::path state_dir;       ///< what follows lies in here
  std::filesystem::path database;        ///< ponder.db
  std::filesystem::path lock;            ///< ponderd.lock, beside the database
  std::filesystem::path socket;          ///< ponderd.sock
  std::filesystem::path key_file;        ///< api-key
  std::filesystem::path logs_dir;        ///< logs/
  std::filesystem::path stopped_marker;  ///< exists while the owner has stopped the daemon
  std::filesystem::path started_with;    ///< the command line of the daemon that runs, or crashed
  bool explicit_home = false;            ///< --home or PONDER_HOME was given
};

/// `home` is the --home argument, or empty for PONDER_HOME, else the XDG directories, else HOME
/// (else the passwd entry). bad_request if none of them names an absolute directory.
Result<Places> find_places(const std::string& home);

/// Makes `dir` (and missing parents) with mode 0700 whatever the umask. One of ours that is
/// open to others is closed to 0700; fails with storage if it is not a directory, not ours, or
/// shared by its sticky bit (/tmp), which is left as it is.
Result<void> make_private_dir(const std::filesystem::path& dir);

/// The directory of the running program, for finding its siblings (ponderd, ponder-engine).
std::filesystem::path executable_dir();

/// The bundled model beside the executable (../../../models/pebble, ../share/ponder/models/pebble),
/// or an empty path.
std::filesystem::path bundled_model();

}  // namespace ponder
