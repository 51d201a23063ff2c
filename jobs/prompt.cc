#include "jobs/prompt.h"

#include <fmt/core.h>

#include <algorithm>

namespace ponder::jobs {
namespace {

tl::unexpected<Error> bad(std::string_view param, std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = std::string(param);
  return fail(std::move(error));
}

std::string before_task(const JobSpec& spec) {
  std::string text;
  if (!spec.context.empty()) text += fmt::format("<context>\n{}\n</context>\n\n", spec.context);
  for (const FileText& file : spec.files)
    text += fmt::format("<file name=\"{}\">\n{}\n</file>\n\n", file.name, file.text);
  return text;
}

std::string after_task(const JobSpec& spec) {
  if (!spec.schema) return {};
  return fmt::format(
      "\n\nAnswer with one JSON value that fits this JSON Schema, and nothing else:\n{}",
      to_json(*spec.schema));
}

bool is_system(const Message& message) {
  return message.role == "system" || message.role == "developer";
}
}  // namespace

Result<std::vector<Message>> build_messages(const JobSpec& spec, const ParentTurn* parent) {
  std::vector<Message> messages;
  if (parent) {
    messages = parent->messages;
    Message turn;
    turn.role = "assistant";
    turn.content = parent->answer;
    // Thinking of earlier turns is not shown to the model, unless it is all there is.
    if (parent->answer.empty() && !parent->reasoning.empty())
      turn.reasoning_content = parent->reasoning;
    messages.push_back(std::move(turn));
  }
  std::vector<Message> fresh = spec.messages;
  if (!spec.task.empty()) fresh.push_back(Message{"user", spec.task});
  if (parent && std::any_of(fresh.begin(), fresh.end(), is_system))
    return bad("messages", "a follow-up goes on with its parent's system text; leave it out");

  if (!spec.system.empty()) {
    const std::vector<Message>& first = parent ? messages : fresh;
    if (!first.empty() && is_system(first.front())) {
      if (!parent || first.front().content != spec.system)
        return bad("system", parent ? "a follow-up goes on with its parent's system text"
                                    : "\"messages\" begin with a system text already");
    } else if (parent) {
      return bad("system", "the parent ran without a system text, and a follow-up keeps to that");
    } else {
      fresh.insert(fresh.begin(), Message{"system", spec.system});
    }
  }

  const std::string before = before_task(spec);
  const std::string after = after_task(spec);
  if (!before.empty() || !after.empty()) {
    const auto last = std::find_if(fresh.rbegin(), fresh.rend(),
                                   [](const Message& m) { return m.role == "user"; });
    if (last == fresh.rend())
      return bad("messages",
                 "\"context\", \"files\" and \"schema\" need a user message to go with");
    last->content = before + last->content + after;
  }
  messages.insert(messages.end(), std::make_move_iterator(fresh.begin()),
                  std::make_move_iterator(fresh.end()));
  return messages;
}

}  // namespace ponder::jobs
