#pragma once
// What `ponder doctor` found, and how it is shown.
#include <string>
#include <vector>

#include "clients/cli/context.h"

namespace ponder::cli {

/// ok, note (worth knowing) or fail (must be mended).
struct Check {
  std::string name;
  std::string state;
  std::string message;
  std::string hint;
};
using Checks = std::vector<Check>;

/// A line for each, or with --json one document: {"ok", "checks"} and the fields of `more`. True:
/// none failed.
bool show_checks(Context& context, const Checks& checks, json::object more = {});

/// The database while no daemon runs, in every part (ponderd --check-database): the exit code.
int check_offline(Context& context);

}  // namespace ponder::cli
