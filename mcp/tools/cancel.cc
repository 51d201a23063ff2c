// cancel: ends a job; what it has written so far stays readable.
#include <fmt/core.h>

#include <array>

#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Cancel a job",
  "description": "End a queued or running job for good. What it has written stays readable with result(job_id, part=partial). Cancelling a job that has ended changes nothing and is not an error.",
  "inputSchema": {
    "type": "object",
    "properties": {"job_id": {"type": "string"}},
    "required": ["job_id"],
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": false, "destructiveHint": true, "idempotentHint": true, "openWorldHint": false}
})json";

constexpr std::array<Argument, 1> kArguments{
    {{.name = "job_id", .kind = Argument::Kind::text, .required = true, .min = 1}}};

constexpr int kTimeoutMs = 30'000;  // the job ends at a step boundary

ToolResult run(const ToolContext& context, ToolCall& call) {
  const std::string id = text_argument(call.arguments, "job_id");
  if (auto wrong = check_id(id)) return *wrong;
  auto response = context.daemon.call("POST", fmt::format("/v1/jobs/{}/cancel", id), nullptr,
                                      kTimeoutMs, &call.interrupt);
  if (!response) return error_result(context, response.error(), id);
  if (!response->body.is_object())
    return error_result(
        fmt::format("The daemon's answer for job {} cannot be read. Call status.", id));
  json::object job = response->body.as_object();
  job["answer"] = nullptr;
  set_next(context, job);
  std::string text = describe(job);
  return job_result(std::move(text), std::move(job), "");
}
}  // namespace

const Tool kCancelTool{"cancel", kDefinition, kArguments, run};

}  // namespace ponder::mcp
