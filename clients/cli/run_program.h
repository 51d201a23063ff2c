#pragma once
// Ponder's other programs, which lie beside this one.
#include <filesystem>
#include <string>
#include <vector>

#include "clients/cli/context.h"

namespace ponder::cli {

/// Becomes the program `name` beside this one (execv), with --home and `arguments`. Returns only
/// if that fails, with the exit code.
int become_program(Context& context, const std::string& name,
                   const std::vector<std::string>& arguments);

/// The first line that `program --version` prints within two seconds, or "".
std::string version_line_of(const std::filesystem::path& program);

/// What a program said on stderr, and how it ended: -1 if it could not be run, was killed, or had
/// not ended after two seconds (it is killed then).
struct ProgramReport {
  int exit_code = -1;
  std::string said;
};
ProgramReport run_briefly(const std::filesystem::path& program, std::vector<std::string> arguments);

/// Runs `ponder-engine info FILE`, which reads all of the file but the weights. exit_code as above
/// after a minute instead; any other than 0 and -1 says that the file is damaged, and `said` why.
ProgramReport run_info(const std::filesystem::path& file);

/// The same of its stdout, however long it takes; Ctrl-C reaches both. What it says on stderr is
/// seen. At most 64 MiB.
ProgramReport run_for_output(const std::filesystem::path& program,
                             std::vector<std::string> arguments);

}  // namespace ponder::cli
