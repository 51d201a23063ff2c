// ponder models: what the daemon serves, and the GGUF files in models/.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"

namespace ponder::cli {
namespace {
namespace fs = std::filesystem;
constexpr int kFilesMax = 1000;

json::array model_files(const fs::path& dir) {
  std::vector<fs::path> found;
  std::error_code ec;
  fs::recursive_directory_iterator it(dir, fs::directory_options::skip_permission_denied, ec);
  for (; !ec && it != fs::recursive_directory_iterator() && found.size() < kFilesMax;
       it.increment(ec)) {
    if (it.depth() > 3) it.disable_recursion_pending();
    std::error_code ignored;
    if (it->path().extension() == ".gguf" && it->is_regular_file(ignored))
      found.push_back(it->path());
  }
  std::sort(found.begin(), found.end());
  json::array files;
  for (const fs::path& path : found) {
    std::error_code ignored;
    files.push_back(json::object{{"path", path.string()}, {"bytes", fs::file_size(path, ignored)}});
  }
  return files;
}

int models(Context& context) {
  const auto places = context.places();
  if (!places) return context.failed(places.error());
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const json::array files = model_files(places->models_dir);
  const auto answer = daemon->call("GET", "/v1/models", nullptr, kPromptlyMs, &context.interrupt());
  if (!answer && context.json()) return context.failed(answer.error());
  std::vector<json::object> served;
  if (answer && answer->body.is_object()) served = objects_at(answer->body.as_object(), "data");
  if (context.json()) {
    context.document({{"served", json::array(served.begin(), served.end())},
                      {"models_dir", places->models_dir.string()},
                      {"files", files}});
    return kDone;
  }
  for (const json::object& model : served)
    context.out(text_at(model, "id") + "  (served)\n");
  for (const json::value& file : files)
    context.out(fmt::format("{}  ({})\n", text_at(file.as_object(), "path"),
                            bytes_in_words(number_at(file.as_object(), "bytes").value_or(0))));
  if (files.empty())
    context.say(fmt::format("ponder: no GGUF files in {}", places->models_dir.string()));
  return answer ? kDone : context.failed(answer.error());
}
}  // namespace

Action declare_models(Arguments&) {
  return models;
}

}  // namespace ponder::cli
