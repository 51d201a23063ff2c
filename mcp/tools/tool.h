#pragma once
// A tool is a file with one definition: its row of tools/list, the checks of its arguments and what
// it does. registry.cc is the table of them.
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "engine/base/clock.h"
#include "mcp/protocol/tool_table.h"
#include "mcp/tools/arguments.h"
#include "mcp/tools/daemon.h"
#include "mcp/tools/workspace.h"

namespace ponder::mcp {

/// What every tool works with; lives as long as the program.
struct ToolContext {
  Daemon& daemon;
  const Workspace& workspace;
  const Clock& clock;
  std::string ponder;       ///< shell words that run the `ponder` beside this program, for its home
  std::string ponderd;      ///< the same for `ponderd`
  std::string config_file;  ///< the daemon's ponder.toml
  std::string version;
};

struct Tool {
  std::string_view name;
  /// The row of tools/list as JSON: title, description, inputSchema, annotations, _meta. The name
  /// is put in front of it.
  std::string_view definition;
  std::span<const Argument> arguments;
  /// Called with checked arguments (null ones are gone). Blocks; thread-safe.
  ToolResult (*run)(const ToolContext& context, ToolCall& call);
};

extern const Tool kAskTool;
extern const Tool kSubmitTool;
extern const Tool kStatusTool;
extern const Tool kResultTool;
extern const Tool kCancelTool;
extern const Tool kHealthTool;

}  // namespace ponder::mcp
