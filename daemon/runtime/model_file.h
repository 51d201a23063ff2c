#pragma once
// From the setting `model` to the file that is served.
#include <filesystem>
#include <string>

#include "daemon/config/config.h"
#include "engine/base/error.h"

namespace ponder::daemon {

/// Where a model may be named from. All absolute.
struct ModelPlaces {
  std::filesystem::path models_dir;
  std::filesystem::path config_dir;   ///< of the ponder.toml that was read
  std::filesystem::path current_dir;  ///< where the daemon was started
  std::string user_home;              ///< HOME, for a leading ~/; empty: none
};

/// The absolute path of the readable file that `engine.model` names, or of the bundled model if it
/// is empty. A relative one from ponder.toml is looked for in the models directory, then beside
/// ponder.toml; one from a flag or the environment in the current directory, then in the models
/// directory. Otherwise model_missing with where it was looked for and how to name a model.
/// Call before the current directory changes. Reads the file system; does not open the file.
Result<std::filesystem::path> find_model(const Config& config, const ModelPlaces& places);

}  // namespace ponder::daemon
