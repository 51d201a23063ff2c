#pragma once
// The key that TCP clients show: made on the first start, kept in a private file.
#include <filesystem>
#include <string>

#include "engine/base/error.h"

namespace ponder::daemon {

/// Reads `file`, or makes it with 256 random bits in hex (0600, complete or not at all). Refused:
/// a link, a file of another user, a key under 32 characters. A file open to others is closed to
/// them.
Result<std::string> load_or_make_api_key(const std::filesystem::path& file);

}  // namespace ponder::daemon
