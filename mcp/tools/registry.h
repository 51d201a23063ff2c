#pragma once
// The table of tools, in the order in which they are listed, and the instructions to the client's
// model about when and how to use them.
#include <map>
#include <span>

#include "mcp/tools/tool.h"

namespace ponder::mcp {

std::span<const Tool* const> all_tools();

/// At most 2,048 bytes: clients cut longer ones. Static, since a client may read it before there
/// is a daemon to ask.
std::string_view instructions();

class ToolRegistry final : public ToolTable {
 public:
  /// `context` must outlive it.
  explicit ToolRegistry(const ToolContext& context);

  const json::array& list() const override { return list_; }
  bool has(std::string_view name) const override;
  ToolResult call(std::string_view name, ToolCall& call) const override;

 private:
  const ToolContext& context_;
  json::array list_;
};

}  // namespace ponder::mcp
