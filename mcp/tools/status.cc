// status: where jobs stand, now or when something moves.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr std::string_view kDefinition = R"json({
  "title": "Job status",
  "description": "Where jobs stand: one (job_id), several (job_ids), or without arguments the recent jobs of this workspace, which is how to find a job whose call timed out. With wait_s it waits until a job's state or phase changes, so you need not poll.",
  "inputSchema": {
    "type": "object",
    "properties": {
      "job_id": {"type": "string"},
      "job_ids": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 20},
      "wait_s": {"type": "number", "minimum": 0, "description": "Seconds to wait for a change (default 0, at most 50)."},
      "all_workspaces": {"type": "boolean", "description": "List the jobs of all workspaces."}
    },
    "additionalProperties": false
  },
  "annotations": {"readOnlyHint": true, "openWorldHint": false},
  "_meta": {"anthropic/alwaysLoad": true}
})json";

using Kind = Argument::Kind;
constexpr std::array<Argument, 4> kArguments{{
    {.name = "job_id", .kind = Kind::text, .min = 1},
    {.name = "job_ids", .kind = Kind::texts, .min = 1, .max = 20},
    {.name = "wait_s", .kind = Kind::number},
    {.name = "all_workspaces", .kind = Kind::flag},
}};

ToolResult one(const ToolContext& context, ToolCall& call, const std::string& id,
               std::int64_t deadline_ms, const std::string& note) {
  if (auto wrong = check_id(id)) return *wrong;
  auto job = get_job(context, &call.interrupt, id);
  if (!job) return error_result(context, job.error(), id);
  const json::object before = *job;
  const bool waits = deadline_ms > context.clock.steady_ms();
  if (waits && !is_terminal(text_of(before, "state"))) {
    job = wait_for_job(context, call, before, deadline_ms,
                       [&](const json::object& now) { return client::has_moved(before, now); });
    if (!job) return error_result(context, job.error(), id);
  }
  set_model(context, call, {&*job, 1});
  set_next(context, *job);
  const std::string text = describe(*job);
  return job_result(text, std::move(*job), note);
}

ToolResult several(const ToolContext& context, ToolCall& call, std::vector<json::object> jobs,
                   std::int64_t deadline_ms, const std::string& note) {
  if (deadline_ms > context.clock.steady_ms()) {
    auto moved = wait_for_any(context, call, std::move(jobs), deadline_ms);
    if (!moved) return error_result(context, moved.error(), "");
    // One that was looked at since stands there without what only lists say.
    for (std::size_t i = 0; i < jobs.size(); ++i)
      if (const json::value* preview = jobs[i].if_contains("preview"))
        (*moved)[i]["preview"] = *preview;
    jobs = std::move(*moved);
  }
  set_model(context, call, jobs);
  std::string text;
  for (json::object& job : jobs) {
    set_next(context, job);
    const std::string label = text_of(job, "label");
    const std::string shown = label.empty() ? text_of(job, "preview") : label;
    const std::int64_t position = whole_of(job, "position");
    text += fmt::format("{}{}; created {}{}\n", status_line(job),
                        position > 0 ? fmt::format("; position {}", position) : "",
                        text_of(job, "created_at"),
                        shown.empty() ? "" : fmt::format("; \"{}\"", shown));
  }
  if (!jobs.empty())
    text += "Next call: result with the job_id of a completed one, status with one that is not.\n";
  if (jobs.empty()) text = "There are no jobs here yet.";
  return jobs_result(std::move(text), std::move(jobs), note);
}

/// The beginning of what an unlabelled job was asked, or the end where it begins with context: an
/// agent that has forgotten an id knows its job again by it.
/// The list says so itself, but for jobs of daemons before it did: their request is read.
std::string preview_of(const ToolContext& context, ToolCall& call, const json::object& job) {
  const json::value* listed = job.if_contains("preview");
  if (listed && listed->is_string()) return std::string(listed->get_string());
  const std::string id = text_of(job, "job_id");
  constexpr std::int64_t kChars = 100;
  auto page = get_text(context, call, id, "request", 0, kChars);
  const bool has_context =
      page && (page->text.starts_with("<context>") || page->text.starts_with("<file "));
  if (has_context && page->total_chars > kChars)
    page = get_text(context, call, id, "request", page->total_chars - kChars, kChars);
  if (!page) return {};
  std::replace(page->text.begin(), page->text.end(), '\n', ' ');
  return std::move(page->text);
}

ToolResult named(const ToolContext& context, ToolCall& call, const json::array& ids,
                 std::int64_t deadline_ms, const std::string& note) {
  std::vector<json::object> jobs;
  std::string unknown;
  std::string known;
  for (const json::value& each : ids) {
    const std::string id(each.as_string());
    if (auto wrong = check_id(id)) {
      unknown += wrong->text + "\n";
      continue;
    }
    auto job = get_job(context, &call.interrupt, id);
    if (!job && job.error().code != ErrorCode::job_unknown)
      return error_result(context, job.error(), id);
    if (!job) {
      unknown += fmt::format("There is no job {}.\n", id);
      continue;
    }
    known += status_line(*job) + "\n";
    jobs.push_back(std::move(*job));
  }
  if (!unknown.empty())
    return error_result(unknown + (known.empty() ? "" : "The others:\n" + known) +
                        "Call status again with known ids, or without arguments to list them.");
  return several(context, call, std::move(jobs), deadline_ms, note);
}

ToolResult listed(const ToolContext& context, ToolCall& call, std::int64_t deadline_ms,
                  const std::string& note) {
  std::string target = fmt::format("/v1/jobs?limit={}", list_length(call.client_name));
  if (!flag_argument(call.arguments, "all_workspaces"))
    target += "&workspace=" + client::percent_encode(context.workspace.directory());
  const auto response = context.daemon.call("GET", target, nullptr, 15'000, &call.interrupt);
  if (!response) return error_result(context, response.error(), "");
  std::vector<json::object> jobs;
  const json::object* body = response->body.if_object();
  const json::value* list = body ? body->if_contains("jobs") : nullptr;
  if (!list || !list->is_array())
    return error_result(
        "The daemon's list of jobs cannot be read: check that ponderd and "
        "ponder-mcp are of the same version.");
  for (const json::value& job : list->get_array())
    if (job.is_object()) jobs.push_back(job.get_object());
  for (json::object& job : jobs) {
    const bool unknown = text_of(job, "label").empty() && text_of(job, "state") != "expired";
    const std::string preview = unknown ? preview_of(context, call, job) : std::string();
    job["preview"] = preview.empty() ? json::value(nullptr) : json::value(preview);
  }
  return several(context, call, std::move(jobs), deadline_ms, note);
}

ToolResult run(const ToolContext& context, ToolCall& call) {
  std::string note;
  const double wait_s = bounded_wait(call.arguments, 0, kStatusWaitMaxS, note);
  const std::int64_t deadline_ms =
      context.clock.steady_ms() + static_cast<std::int64_t>(wait_s * 1000);
  const json::value* id = call.arguments.if_contains("job_id");
  const json::value* ids = call.arguments.if_contains("job_ids");
  if (id && ids) return error_result("status: give job_id or job_ids, not both. Call again.");
  if (id) return one(context, call, std::string(id->as_string()), deadline_ms, note);
  if (ids) return named(context, call, ids->as_array(), deadline_ms, note);
  return listed(context, call, deadline_ms, note);
}
}  // namespace

const Tool kStatusTool{"status", kDefinition, kArguments, run};

}  // namespace ponder::mcp
