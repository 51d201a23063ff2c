#pragma once
// From what a caller gave to the conversation that the model reads. Pure.
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/generator/chat_request.h"
#include "jobs/job.h"

namespace ponder::jobs {

/// What a follow-up goes on from: the parent's conversation and what it came to.
struct ParentTurn {
  std::vector<Message> messages;
  std::string reasoning;
  std::string answer;
};

/// The messages of a job. `parent` is set for a follow-up. The new user turn holds context, files
/// and task in this order, and what the schema asks for; `messages` take the same around their
/// last user turn. bad_request where the pieces do not go together.
Result<std::vector<Message>> build_messages(const JobSpec& spec, const ParentTurn* parent);

/// Among a row's facts: what preview_of() gave.
inline constexpr const char* kPreview = "preview";

/// What was asked, in at most 100 characters of one line, for lists of jobs: the beginning of the
/// task or of the last user turn; the end where that begins with context.
std::string preview_of(const JobSpec& spec, const std::vector<Message>& messages);

}  // namespace ponder::jobs
