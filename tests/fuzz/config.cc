// ponder.toml, whatever stands in it: what is accepted prints as a file that is read as the same.
#include <sys/mman.h>
#include <unistd.h>

#include "daemon/config/config.h"
#include "engine/base/check.h"

using namespace ponder;

namespace {

Result<daemon::Config> load(std::string_view text) {
  const int fd = ::memfd_create("ponder.toml", MFD_CLOEXEC);
  CHECK(fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()));
  auto config = daemon::load_config("/proc/self/fd/" + std::to_string(fd), true,
                                    [](const char*) -> const char* { return nullptr; }, {});
  ::close(fd);
  return config;
}

/// Without the comments, which name the source of each line.
std::string printed(const daemon::Config& config) {
  daemon::Config bare = config;
  bare.origin.clear();
  return daemon::print_config(bare);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto config = load({reinterpret_cast<const char*>(data), size});
  if (!config) {
    CHECK_MSG(!config.error().message.empty(), "refused without a word");
    return 0;
  }
  const std::string text = printed(*config);
  const auto again = load(text);
  CHECK_MSG(again.has_value(), "what is printed is refused: " + again.error().message);
  CHECK_MSG(printed(*again) == text, "what is printed means something else");
  for (const std::string& address : config->network.listen)
    static_cast<void>(daemon::parse_listen_address(address));
  return 0;
}
