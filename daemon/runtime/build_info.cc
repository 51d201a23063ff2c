#include "daemon/runtime/build_info.h"

namespace ponder::daemon {
std::string version() {
  return PONDER_VERSION;
}
std::string build() {
  return PONDER_BUILD;
}
}  // namespace ponder::daemon
