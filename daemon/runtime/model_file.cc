#include "daemon/runtime/model_file.h"

#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "engine/base/places.h"

namespace ponder::daemon {
namespace fs = std::filesystem;
namespace {

tl::unexpected<Error> refuse(std::string message, const ModelPlaces& places) {
  return fail(ErrorCode::model_missing, std::move(message),
              fmt::format("put a GGUF file in {} and name it in ponder.toml (model = \"FILE\") or "
                          "start ponderd --model FILE",
                          places.models_dir.string()));
}

bool is_from_file(const Config& config) {
  const auto origin = config.origin.find("model");
  if (origin == config.origin.end()) return false;
  return origin->second.rfind("--", 0) != 0 && origin->second.rfind("PONDER_", 0) != 0;
}

std::vector<fs::path> candidates(const Config& config, const ModelPlaces& places) {
  const std::string& name = config.engine.model;
  if (name.rfind("~/", 0) == 0 && !places.user_home.empty())
    return {(fs::path(places.user_home) / name.substr(2)).lexically_normal()};
  const fs::path path = name;
  if (path.is_absolute()) return {path.lexically_normal()};
  const bool from_file = is_from_file(config);
  const fs::path& first = from_file ? places.models_dir : places.current_dir;
  const fs::path& second = from_file ? places.config_dir : places.models_dir;
  return {(first / path).lexically_normal(), (second / path).lexically_normal()};
}
}  // namespace

Result<fs::path> find_model(const Config& config, const ModelPlaces& places) {
  if (config.engine.model.empty()) {
    const fs::path bundled = bundled_model();
    if (bundled.empty()) return refuse("no model is configured", places);
    return bundled;
  }
  const std::vector<fs::path> paths = candidates(config, places);
  std::error_code ec;
  for (const fs::path& path : paths) {
    if (!fs::is_regular_file(path, ec)) continue;
    if (::access(path.c_str(), R_OK) != 0)
      return refuse(fmt::format("{} cannot be read: {}", path.string(), std::strerror(errno)),
                    places);
    return path;
  }
  for (const fs::path& path : paths)
    if (fs::is_directory(path, ec))
      return refuse(fmt::format("{} is a directory, not a model file", path.string()), places);
  std::string message = fmt::format("there is no model file {}", paths.front().string());
  if (paths.size() > 1) message += fmt::format(" and no {}", paths.back().string());
  return refuse(std::move(message), places);
}

}  // namespace ponder::daemon
