#pragma once
// Words for a POSIX shell.
#include <string>

namespace ponder::client {

/// `word` as a shell reads it back: as it is where nothing in it is special, else quoted.
std::string shell_quoted(const std::string& word);

}  // namespace ponder::client
