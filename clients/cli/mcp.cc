// ponder mcp: becomes ponder-mcp, the MCP server on stdin and stdout.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/run_program.h"

namespace ponder::cli {
namespace {
int mcp(Context& context, std::vector<std::string> options) {
  if (!options.empty() && options.front() == "install")
    return context.usage(
        fmt::format("`ponder mcp install` is not there yet; name the program in your "
                    "client's configuration, for Claude Code: claude mcp add ponder -- {}",
                    (executable_dir() / "ponder-mcp").string()));
  if (context.globals().no_start) options.insert(options.begin(), "--no-start");
  return become_program(context, "ponder-mcp", options);
}
}  // namespace

Action declare_mcp(Arguments& arguments) {
  auto rest = std::make_shared<std::vector<std::string>>();
  arguments.rest(*rest);
  return [rest](Context& context) { return mcp(context, *rest); };
}

}  // namespace ponder::cli
