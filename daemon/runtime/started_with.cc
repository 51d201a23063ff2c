#include "daemon/runtime/started_with.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include "engine/base/json.h"
#include "engine/base/log.h"
#include "engine/base/unique_fd.h"

namespace ponder::daemon {
namespace {
constexpr std::string_view kFileOptions[] = {"--model", "--config"};

bool names_a_file(std::string_view option) {
  for (const std::string_view known : kFileOptions)
    if (option == known) return true;
  return false;
}
}  // namespace

std::vector<std::string> words_to_keep(int argc, const char* const* argv,
                                       const std::filesystem::path& working_dir) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const std::size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);
    if (option == "--detach") continue;
    if (option == "--home") {
      if (equals == std::string::npos) ++i;
      continue;
    }
    if (!names_a_file(option)) {
      words.push_back(word);
      continue;
    }
    std::string value = equals != std::string::npos ? word.substr(equals + 1) : "";
    if (equals == std::string::npos && i + 1 < argc) value = argv[++i];
    words.push_back(option);
    words.push_back((working_dir / value).lexically_normal().string());
  }
  return words;
}

StartedWith::StartedWith(std::filesystem::path file, const std::vector<std::string>& words)
    : file_(std::move(file)) {
  const std::string text = to_json(json::array(words.begin(), words.end())) + "\n";
  const std::string beside = file_.string() + ".new";
  const UniqueFd fd(
      ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd || ::write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
      ::rename(beside.c_str(), file_.c_str()) != 0)
    log_warn(fmt::format("{} cannot be written: {}", file_.string(), std::strerror(errno)));
}

StartedWith::~StartedWith() {
  ::unlink(file_.c_str());
}

}  // namespace ponder::daemon
