// result: a job's text, in pages or into a file.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "engine/base/utf8.h"
#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Job result",
  "description": "Read the text of a job: the answer of a completed one, its reasoning, or with part=partial what there is of an answer that was cut or is still being written. Long texts come in pages: go on with offset = next_offset until it is null. With out_file the whole text goes into a file of the workspace instead. A job that is not completed has no answer: that is an error which names the next call.",
  "inputSchema": {
    "type": "object",
    "properties": {
      "job_id": {"type": "string"},
      "part": {"type": "string", "enum": ["answer", "reasoning", "partial"], "description": "Default answer."},
      "offset": {"type": "integer", "minimum": 0, "description": "First character (default 0)."},
      "limit": {"type": "integer", "minimum": 1, "description": "Characters in this page (at most 20000)."},
      "out_file": {"type": "string", "description": "Path below the workspace to write the whole text to. A file with other content is not overwritten."}
    },
    "required": ["job_id"],
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": false, "destructiveHint": false, "idempotentHint": true, "openWorldHint": false},
  "_meta": {"anthropic/alwaysLoad": true, "anthropic/maxResultSizeChars": 60000}
})json";

using Kind = Argument::Kind;
constexpr std::array<std::string_view, 3> kParts{"answer", "reasoning", "partial"};
constexpr std::array<Argument, 5> kArguments{{
    {.name = "job_id", .kind = Kind::text, .required = true, .min = 1},
    {.name = "part", .kind = Kind::words, .words = kParts},
    {.name = "offset", .kind = Kind::whole},
    {.name = "limit", .kind = Kind::whole, .min = 1},
    {.name = "out_file", .kind = Kind::text, .min = 1},
}};

ToolResult into_file(const ToolContext& context, ToolCall& call, json::object job,
                     const std::string& part, const std::string& note) {
  const std::string id = text_of(job, "job_id");
  const auto page = get_text(context, call, id, part, 0, -1);
  if (!page) return error_result(context, page.error(), id);
  const auto path =
      context.workspace.write_file(text_argument(call.arguments, "out_file"), page->text);
  if (!path) return error_result(context, path.error(), "");
  const std::int64_t chars = count_code_points(page->text);
  job["part"] = part;
  job["out_file"] = *path;
  job["out_file_bytes"] = page->text.size();
  job["total_chars"] = chars;
  job["truncated"] = false;
  job["next_offset"] = nullptr;
  job["next"] = nullptr;
  return job_result(
      fmt::format("Wrote the {} of the job, {} characters ({} bytes), to {}",
                  part == "partial" ? "partial answer" : part, chars, page->text.size(), *path),
      std::move(job), note);
}

/// A page of the reasoning or of a partial answer, of a job in any state.
ToolResult other_part(const ToolContext& context, ToolCall& call, json::object job,
                      const std::string& part, std::int64_t offset, std::int64_t limit,
                      const std::string& note) {
  const std::string id = text_of(job, "job_id");
  const std::string state = text_of(job, "state");
  const auto page = get_text(context, call, id, part, offset, limit);
  if (!page) return error_result(context, page.error(), id);
  set_next(context, job);
  job["part"] = part;
  job["text"] = page->text;
  job["offset"] = page->offset;
  job["total_chars"] = page->total_chars;
  job["truncated"] = page->next_offset >= 0;
  job["next_offset"] = nullptr;
  if (page->next_offset >= 0) {
    job["next_offset"] = page->next_offset;
    job["next"].emplace_object()["mcp"] = json::object{
        {"tool", "result"},
        {"arguments", json::object{{"job_id", id}, {"part", part}, {"offset", page->next_offset}}}};
    job["next"].as_object()["shell"] =
        fmt::format("{} result --part {} {}", context.ponder, part, id);
  } else if (is_terminal(state)) {
    job["next"] = nullptr;
  }
  std::string head = page_line(*page, limit, id, part);
  if (part == "partial" && state != "completed")
    head += fmt::format("[not a whole answer: the job {} {}]\n",
                        is_terminal(state) ? "ended" : "is", state);
  if (!is_terminal(state) && page->next_offset < 0)
    head += fmt::format("[{}]\n", next_in_words(job));
  return job_result(head + page->text, std::move(job), note);
}

ToolResult run(const ToolContext& context, ToolCall& call) {
  const std::string id = text_argument(call.arguments, "job_id");
  if (auto wrong = check_id(id)) return *wrong;
  std::string part = text_argument(call.arguments, "part");
  if (part.empty()) part = "answer";
  const std::int64_t offset = whole_argument(call.arguments, "offset", 0);
  std::string note;
  std::int64_t limit = whole_argument(call.arguments, "limit", page_chars(call.client_name));
  if (limit > kPageCharsMax) {
    add_note(note, fmt::format("limit was lowered from {} to {}", limit, kPageCharsMax));
    limit = kPageCharsMax;
  }
  auto job = get_job(context, &call.interrupt, id);
  if (!job) return error_result(context, job.error(), id);
  const std::string state = text_of(*job, "state");
  if (state == "expired" || (part == "answer" && state != "completed"))
    return no_answer_result(context, call, std::move(*job), note);
  if (call.arguments.contains("out_file")) {
    if (call.arguments.contains("offset") || call.arguments.contains("limit"))
      add_note(note, "offset and limit do not count with out_file: the whole text was written");
    return into_file(context, call, std::move(*job), part, note);
  }
  if (part == "answer") return answer_result(context, call, std::move(*job), offset, limit, note);
  return other_part(context, call, std::move(*job), part, offset, limit, note);
}
}  // namespace

const Tool kResultTool{"result", kDefinition, kArguments, run};

}  // namespace ponder::mcp
