#pragma once
// What was built.
#include <string>
namespace ponder::daemon {
std::string version();  ///< "0.1.0"
std::string build();    ///< the commit the tree was configured at, or "unknown"
}  // namespace ponder::daemon
