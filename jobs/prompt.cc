#include "jobs/prompt.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/utf8.h"

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

constexpr std::int64_t kPreviewChars = 100;
constexpr std::size_t kMostBytes = 4;  // of a character

/// Of a text of any size only the end is looked at.
std::string_view last_chars(std::string_view text, std::int64_t n) {
  std::size_t begin = text.size() - std::min(text.size(), static_cast<std::size_t>(n) * kMostBytes);
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80)
    ++begin;
  text.remove_prefix(begin);
  const std::int64_t surplus = count_code_points(text) - n;
  return surplus > 0 ? text.substr(byte_offset_of(text, surplus)) : text;
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

std::string preview_of(const JobSpec& spec, const std::vector<Message>& messages) {
  std::string_view text = spec.task;
  if (text.empty()) {
    const auto last = std::find_if(messages.rbegin(), messages.rend(),
                                   [](const Message& m) { return m.role == "user"; });
    if (last != messages.rend()) text = last->content;
  }
  const bool has_context = text.starts_with("<context>") || text.starts_with("<file ");
  std::string preview(has_context ? last_chars(text, kPreviewChars)
                                  : text.substr(0, byte_offset_of(text, kPreviewChars)));
  std::replace(preview.begin(), preview.end(), '\n', ' ');
  return preview;
}

}  // namespace ponder::jobs
