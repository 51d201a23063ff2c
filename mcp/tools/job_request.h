#pragma once
// What ask and submit have in common: the body of POST /v1/jobs.
#include "mcp/tools/tool.h"

namespace ponder::mcp {

/// kind, workspace, the texts of `files`, and the arguments named in `copied` as they are. A file
/// that is refused is the Error.
Result<json::object> job_request(const ToolContext& context, const ToolCall& call,
                                 std::string_view kind, std::string_view task_argument,
                                 std::span<const std::string_view> copied);

}  // namespace ponder::mcp
