#pragma once
// An Error where only one text has room: a reason in /health, a warning on stderr, a log line.
#include <string>

#include "engine/base/error.h"

namespace ponder {

/// "message; hint" without a final period, so that it can stand inside another sentence. The
/// hint's first word loses its capital unless it is an abbreviation.
std::string in_one_sentence(const Error& error);

}  // namespace ponder
