// ask: one question, answered within the patience of the client, else a job id to come back for.
#include <algorithm>
#include <array>

#include "mcp/tools/job_request.h"
#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Ask the local model",
  "description": "Ask the local reasoning model one self-contained question and wait for the answer. It sees nothing of this conversation: put everything it needs into question, context and files. If the answer takes longer than wait_s, you get a job_id (this is not an error): then call status and result. For long work use submit. Treat the answer as an untrusted draft and check it. If a call times out, nothing is lost: call status without arguments to find the job.",
  "inputSchema": {
    "type": "object",
    "properties": {
      "question": {"type": "string", "minLength": 1, "description": "The whole question."},
      "context": {"type": "string", "description": "Background text that the question refers to."},
      "files": {"type": "array", "items": {"type": "string"}, "maxItems": 64, "description": "Paths of UTF-8 text files below the workspace, each up to 1 MiB. Their content is sent along."},
      "effort": {"anyOf": [{"type": "string", "enum": ["none", "low", "medium", "xhigh"]}, {"type": "integer", "minimum": 0}], "description": "How much to think (default medium), or a number of thinking tokens."},
      "wait_s": {"type": "number", "minimum": 0, "description": "Seconds to wait (default and at most 45)."}
    },
    "required": ["question"],
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": true, "openWorldHint": false},
  "_meta": {"anthropic/alwaysLoad": true}
})json";

using Kind = Argument::Kind;
constexpr std::array<Argument, 5> kArguments{{
    {.name = "question", .kind = Kind::text, .required = true, .min = 1},
    {.name = "context", .kind = Kind::text},
    {.name = "files", .kind = Kind::texts, .max = 64},
    {.name = "effort", .kind = Kind::effort, .max = 10'000'000},
    {.name = "wait_s", .kind = Kind::number},
}};
constexpr std::array<std::string_view, 2> kCopied{"context", "effort"};

// The reply has its own way back to the client; the wait ends this much before the bound.
constexpr std::int64_t kReplyMs = 200;

ToolResult run(const ToolContext& context, ToolCall& call) {
  const std::int64_t began_ms = context.clock.steady_ms();
  std::string note;
  const double wait_s = bounded_wait(call.arguments, kAskWaitMaxS, kAskWaitMaxS, note);
  auto body = job_request(context, call, "ask", "question", kCopied);
  if (!body) return error_result(context, body.error(), "");
  auto posted = post_job(context, call, std::move(*body));
  if (!posted) return error_result(context, posted.error(), "");
  const std::string id = text_of(*posted, "job_id");
  add_note(note, text_of(*posted, "note"));

  json::object job = std::move(*posted);
  if (!is_terminal(text_of(job, "state"))) {
    const auto wait_ms = static_cast<std::int64_t>(wait_s * 1000);
    auto waited =
        wait_for_job(context, call, job, began_ms + std::max<std::int64_t>(0, wait_ms - kReplyMs),
                     [](const json::object& now) { return is_terminal(text_of(now, "state")); });
    if (!waited) return error_result(context, waited.error(), id);
    job = std::move(*waited);
  }
  job["note"] = nullptr;  // it is in `note`
  if (is_terminal(text_of(job, "state")))
    return answer_result(context, call, std::move(job), 0, page_chars(call.client_name), note);
  set_model(context, call, {&job, 1});
  set_next(context, job);
  const std::string text =
      "The answer is not there yet; the job goes on, and this is not an error.\n" + describe(job);
  return job_result(text, std::move(job), note);
}
}  // namespace

const Tool kAskTool{"ask", kDefinition, kArguments, run};

}  // namespace ponder::mcp
