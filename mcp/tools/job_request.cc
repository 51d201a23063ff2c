#include "mcp/tools/job_request.h"

namespace ponder::mcp {

Result<json::object> job_request(const ToolContext& context, const ToolCall& call,
                                 std::string_view kind, std::string_view task_argument,
                                 std::span<const std::string_view> copied) {
  json::object body{{"kind", kind}, {"workspace", context.workspace.directory()}};
  if (const json::value* task = call.arguments.if_contains(task_argument)) body["task"] = *task;
  for (const std::string_view name : copied)
    if (const json::value* given = call.arguments.if_contains(name)) body[name] = *given;
  const json::value* paths = call.arguments.if_contains("files");
  if (!paths) return body;
  std::vector<std::string> names;
  for (const json::value& path : paths->as_array())
    names.emplace_back(std::string(path.as_string()));
  TRY(std::vector<FileText> files, context.workspace.read_files(names));
  json::array list;
  for (FileText& file : files)
    list.emplace_back(json::object{{"name", file.name}, {"text", std::move(file.text)}});
  body["files"] = std::move(list);
  return body;
}

}  // namespace ponder::mcp
