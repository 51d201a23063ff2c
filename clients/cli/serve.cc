// ponder serve: the daemon in the foreground, with ponderd's own options.
#include <memory>
#include <string>
#include <vector>

#include "clients/cli/commands.h"
#include "clients/cli/run_program.h"

namespace ponder::cli {
namespace {
int serve(Context& context, const std::vector<std::string>& options) {
  return become_program(context, "ponderd", options);
}
}  // namespace

Action declare_serve(Arguments& arguments) {
  auto rest = std::make_shared<std::vector<std::string>>();
  arguments.rest(*rest);
  return [rest](Context& context) { return serve(context, *rest); };
}

}  // namespace ponder::cli
