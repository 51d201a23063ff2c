// The body of POST /v1/jobs, read once and checked.
#include <fmt/core.h>

#include "engine/base/utf8.h"
#include "jobs/job.h"

namespace ponder::jobs {
namespace {

constexpr std::int64_t kMaxLabelChars = 200;
constexpr std::size_t kMaxWorkspaceBytes = 4096;
constexpr std::size_t kMaxKeyBytes = 200;
constexpr std::size_t kMaxFiles = 64;
constexpr std::size_t kMaxFileNameBytes = 1024;
constexpr std::size_t kMaxTextBytes = 16u << 20;   // one text: task, context, system, a file
constexpr std::size_t kMaxTotalBytes = 24u << 20;  // all of them together
constexpr double kMaxDeadlineSeconds = 30 * 86400.0;

tl::unexpected<Error> bad(std::string_view param, std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = std::string(param);
  return fail(std::move(error));
}

Result<std::string> text_field(const json::object& body, std::string_view key, std::size_t& total) {
  TRY(std::string text, string_field(body, key));
  if (text.size() > kMaxTextBytes)
    return bad(key, fmt::format("\"{}\" has {} bytes; at most {} are accepted", key, text.size(),
                                kMaxTextBytes));
  total += text.size();
  return text;
}

/// A short name that stands on one line: no control characters.
Result<std::string> name_field(const json::object& body, std::string_view key,
                               std::size_t max_bytes) {
  TRY(std::string text, string_field(body, key));
  if (text.size() > max_bytes)
    return bad(key, fmt::format("\"{}\" may have at most {} bytes", key, max_bytes));
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)
      return bad(key, fmt::format("\"{}\" may not hold control characters", key));
  return text;
}

template <class Enum>
Result<Enum> word_field(const json::object& body, std::string_view key, Enum fallback,
                        std::initializer_list<std::pair<std::string_view, Enum>> words) {
  TRY(std::string word, string_field(body, key));
  if (!has_field(body, key)) return fallback;
  std::string known;
  for (const auto& [name, value] : words) {
    if (name == word) return value;
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", name);
  }
  return bad(key, fmt::format("\"{}\" must be one of {}", key, known));
}

Result<std::vector<FileText>> files_field(const json::object& body, std::size_t& total) {
  std::vector<FileText> files;
  if (!has_field(body, "files")) return files;
  const json::value& value = body.at("files");
  if (!value.is_array()) return bad("files", R"("files" must be a list of {"name", "text"})");
  if (value.as_array().size() > kMaxFiles)
    return bad("files", fmt::format("at most {} files are accepted", kMaxFiles));
  for (const json::value& entry : value.as_array()) {
    if (!entry.is_object() || !has_field(entry.as_object(), "name") ||
        !has_field(entry.as_object(), "text"))
      return bad("files", R"(each of "files" must be an object with "name" and "text")");
    FileText file;
    TRY(file.name, name_field(entry.as_object(), "name", kMaxFileNameBytes));
    TRY(file.text, text_field(entry.as_object(), "text", total));
    files.push_back(std::move(file));
  }
  return files;
}

Result<std::vector<Message>> messages_field(const json::object& body, std::size_t& total) {
  if (!has_field(body, "messages")) return std::vector<Message>{};
  TRY(ChatRequest chat, parse_chat_request(json::object{{"messages", body.at("messages")}}));
  if (chat.messages.empty()) return bad("messages", R"("messages" must not be empty)");
  for (const Message& message : chat.messages)
    total += message.content.size();
  return std::move(chat.messages);
}

}  // namespace

Result<JobSpec> parse_job_spec(const json::object& body) {
  JobSpec spec;
  std::size_t total = 0;
  TRY(spec.kind,
      word_field(body, "kind", Lane::batch, {{"ask", Lane::ask}, {"batch", Lane::batch}}));
  TRY(spec.task, text_field(body, "task", total));
  TRY(spec.messages, messages_field(body, total));
  TRY(spec.mode, word_field(body, "mode", Mode::follow_up,
                            {{"follow_up", Mode::follow_up},
                             {"resume", Mode::resume},
                             {"answer_now", Mode::answer_now}}));
  const bool asks_anew = spec.mode == Mode::follow_up;  // else the parent's request goes on
  if (asks_anew ? spec.task.empty() == spec.messages.empty()
                : !spec.task.empty() && !spec.messages.empty())
    return bad("task", spec.task.empty() ? R"(one of "task" and "messages" must be given)"
                                         : R"(only one of "task" and "messages" may be given)");
  TRY(spec.context, text_field(body, "context", total));
  TRY(spec.files, files_field(body, total));
  TRY(spec.system, text_field(body, "system", total));
  if (total > kMaxTotalBytes)
    return bad("task", fmt::format("the texts have {} bytes together; at most {} are accepted",
                                   total, kMaxTotalBytes));
  if (has_field(body, "effort")) {
    auto effort = parse_effort(body.at("effort"));
    if (!effort) {
      effort.error().param = "effort";
      return fail(effort.error());
    }
    spec.effort = *effort;
  }
  TRY(spec.sampling, parse_sampling(body));
  TRY(spec.budgets, parse_budgets(body));
  if (has_field(body, "deadline_s")) {
    TRY(spec.deadline_s, number_field(body, "deadline_s", 0, 0.001, kMaxDeadlineSeconds));
  }
  TRY(spec.on_limit, word_field(body, "on_limit", OnLimit::stop,
                                {{"stop", OnLimit::stop}, {"answer", OnLimit::answer}}));
  if (has_field(body, "schema")) spec.schema = body.at("schema");
  TRY(spec.label, name_field(body, "label", kMaxLabelChars * 4));
  if (count_code_points(spec.label) > kMaxLabelChars)
    return bad("label", fmt::format("\"label\" may have at most {} characters", kMaxLabelChars));
  TRY(spec.workspace, name_field(body, "workspace", kMaxWorkspaceBytes));
  TRY(spec.idempotency_key, name_field(body, "idempotency_key", kMaxKeyBytes));
  TRY(spec.continue_from, string_field(body, "continue_from"));
  if (spec.continue_from.size() > 64) return bad("continue_from", "not the id of a job");
  if (!asks_anew && spec.continue_from.empty())
    return bad("continue_from", "this \"mode\" needs the id of the job to go on from");
  TRY(spec.force_new, bool_field(body, "force_new", false));
  TRY(spec.pin, bool_field(body, "pin", false));
  return spec;
}

}  // namespace ponder::jobs
