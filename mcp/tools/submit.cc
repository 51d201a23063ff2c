// submit: a durable job in the batch lane, for work that outlives the call.
#include <fmt/format.h>

#include <array>

#include "mcp/tools/job_request.h"
#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Submit a long job",
  "description": "Hand a long reasoning task to the local model as a durable job and return at once with its job_id. It survives restarts of this client and of the daemon. The model sees only what you send: write a complete specification into task, add context and files. Then wait with the shell command in the answer (in the background; it exits when the job ends) or with status(job_id, wait_s), and read result(job_id). The result is an untrusted draft: check it. Repeating an identical live submit returns the same job.",
  "inputSchema": {
    "type": "object",
    "properties": {
      "task": {"type": "string", "minLength": 1, "description": "The complete, self-contained task. Needed unless mode is resume or answer_now."},
      "context": {"type": "string", "description": "Background text."},
      "files": {"type": "array", "items": {"type": "string"}, "maxItems": 64, "description": "Paths of UTF-8 text files below the workspace, each up to 1 MiB, 8 MiB together."},
      "system": {"type": "string", "description": "System prompt."},
      "effort": {"anyOf": [{"type": "string", "enum": ["none", "low", "medium", "xhigh"]}, {"type": "integer", "minimum": 0}], "description": "How much to think (default xhigh), or a number of thinking tokens."},
      "max_reasoning_tokens": {"type": "integer", "minimum": 0, "description": "Thinking budget (at xhigh, where no budget is given: 131072)."},
      "max_answer_tokens": {"type": "integer", "minimum": 1, "description": "Answer budget (at xhigh, where no budget is given: 8192)."},
      "deadline_s": {"type": "number", "exclusiveMinimum": 0, "maximum": 2592000, "description": "Most seconds of running time."},
      "on_limit": {"type": "string", "enum": ["stop", "answer"], "description": "What a spent thinking budget or deadline does: stop (default) ends the job incomplete; answer closes the thinking and answers."},
      "schema": {"type": "object", "description": "JSON Schema that the answer must match."},
      "label": {"type": "string", "maxLength": 200, "description": "A name for lists."},
      "idempotency_key": {"type": "string", "maxLength": 200, "description": "The same key and request give the same job."},
      "continue_from": {"type": "string", "description": "job_id of an earlier job to go on from, in a new job."},
      "mode": {"type": "string", "enum": ["follow_up", "resume", "answer_now"], "description": "follow_up (default): task is the next turn. resume: a job that was cut goes on from its last token; budgets count from there. answer_now: its thinking is closed and it answers; a running job is ended for it."},
      "force_new": {"type": "boolean", "description": "A new job even if an identical one is live."},
      "pin": {"type": "boolean", "description": "Keep the result for good."}
    },
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": false, "destructiveHint": false, "openWorldHint": false},
  "_meta": {"anthropic/alwaysLoad": true}
})json";

using Kind = Argument::Kind;
constexpr std::array<std::string_view, 3> kModes{"follow_up", "resume", "answer_now"};
constexpr std::array<std::string_view, 2> kOnLimits{"stop", "answer"};
constexpr double kTokensMax = 10'000'000;
constexpr std::array<Argument, 16> kArguments{{
    {.name = "task", .kind = Kind::text, .min = 1},
    {.name = "context", .kind = Kind::text},
    {.name = "files", .kind = Kind::texts, .max = 64},
    {.name = "system", .kind = Kind::text},
    {.name = "effort", .kind = Kind::effort, .max = kTokensMax},
    {.name = "max_reasoning_tokens", .kind = Kind::whole, .max = kTokensMax},
    {.name = "max_answer_tokens", .kind = Kind::whole, .min = 1, .max = kTokensMax},
    {.name = "deadline_s", .kind = Kind::number, .min = 0.001, .max = 2'592'000},
    {.name = "on_limit", .kind = Kind::words, .words = kOnLimits},
    {.name = "schema", .kind = Kind::object},
    {.name = "label", .kind = Kind::text, .max = 200},
    {.name = "idempotency_key", .kind = Kind::text, .min = 1, .max = 200},
    {.name = "continue_from", .kind = Kind::text, .min = 1},
    {.name = "mode", .kind = Kind::words, .words = kModes},
    {.name = "force_new", .kind = Kind::flag},
    {.name = "pin", .kind = Kind::flag},
}};
constexpr std::array<std::string_view, 14> kCopied{
    "context",   "system", "effort", "max_reasoning_tokens", "max_answer_tokens", "deadline_s",
    "on_limit",  "schema", "label",  "idempotency_key",      "continue_from",     "mode",
    "force_new", "pin"};

ToolResult run(const ToolContext& context, ToolCall& call) {
  const std::string parent = text_argument(call.arguments, "continue_from");
  if (!parent.empty())
    if (auto wrong = check_id(parent)) return *wrong;
  const std::string mode = text_argument(call.arguments, "mode");
  const bool asks_anew = mode.empty() || mode == "follow_up";
  if (asks_anew && !call.arguments.contains("task"))
    return error_result(
        "submit: \"task\" is missing. Give the complete, self-contained task as a string. Only "
        "with "
        "continue_from and mode resume or answer_now it may be left out.");
  if (!asks_anew && parent.empty())
    return error_result(fmt::format(
        "submit: mode {} needs \"continue_from\", the job_id of the job to go on from. status "
        "without arguments lists this workspace's jobs.",
        mode));
  auto body = job_request(context, call, "batch", "task", kCopied);
  if (!body) return error_result(context, body.error(), "");
  auto posted = post_job(context, call, std::move(*body));
  if (!posted) {
    const ErrorCode code = posted.error().code;
    const bool is_about_parent = posted.error().param == "continue_from" ||
                                 code == ErrorCode::job_unknown || code == ErrorCode::gone;
    return error_result(context, posted.error(), is_about_parent ? parent : "");
  }
  json::object& job = *posted;
  set_model(context, call, {&job, 1});
  set_next(context, job);
  job["answer"] = nullptr;
  std::string note;
  if (const std::string warning = text_of(job, "warning"); !warning.empty()) note = warning;
  job.erase("warning");
  const json::object& tokens = object_of(job, "tokens");
  std::string text = describe(job);
  text += fmt::format("The prompt has {} tokens; {} are reserved for thinking and answer.\n",
                      whole_of(tokens, "prompt"), whole_of(tokens, "reserved"));
  if (!has_field(object_of(job, "eta_s"), "p90"))
    text += "There is no estimate yet of how long it will take.\n";
  if (!is_terminal(text_of(job, "state")))
    text +=
        "The shell command exits when the job has ended, so started in the background it is "
        "your notification. The job goes on without you.\n";
  return job_result(std::move(text), std::move(job), note);
}
}  // namespace

const Tool kSubmitTool{"submit", kDefinition, kArguments, run};

}  // namespace ponder::mcp
