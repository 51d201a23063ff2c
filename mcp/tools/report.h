#pragma once
// How a job is told to a model: the text block, the structured half that holds the same, and the
// errors that name the next call. Pure functions but for those that ask the daemon for a text.
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mcp/tools/job_calls.h"

namespace ponder::mcp {

constexpr std::int64_t kPageCharsMax = 20'000;  ///< the largest `limit` that is honoured
constexpr std::size_t kErrorCharsMax = 8'000;
constexpr double kAskWaitMaxS = 45;  ///< clients give up on a call after 60 s
constexpr double kStatusWaitMaxS = 50;

/// Characters of text a client takes in one answer without cutting it.
std::int64_t page_chars(std::string_view client_name);
/// Jobs in a list for it.
int list_length(std::string_view client_name);

/// "job ID completed; effort medium; tokens 12 prompt, 30 reasoning, 7 answer; 4.2 s", and what
/// else must not be overlooked (demo model, forced answer, notes).
std::string status_line(const json::object& envelope);
/// "thinking, 1240 tokens".
std::string progress_message(const json::object& envelope);

/// A success: `text`, "---" and the status line; the envelope. `note` goes into both.
ToolResult job_result(std::string text, json::object envelope, const std::string& note);
/// The same for several jobs or none.
ToolResult jobs_result(std::string text, std::vector<json::object> jobs, const std::string& note);
/// An error: one text, cut to kErrorCharsMax.
ToolResult error_result(std::string text);
/// `error` for a model: what happened, what mends it, what to call. `id` if a job is known.
ToolResult error_result(const ToolContext& context, const Error& error, std::string_view id);
/// A hint in which commands `ponder ...` stand, at its beginning, after ": ", "; " or "&& ", or in
/// backticks; with the path and home of the one beside this program: an agent's shell may have
/// neither.
std::string with_full_command(const ToolContext& context, const std::string& hint);

/// Names in envelopes of jobs that have not run yet the model that will run them, so that nobody
/// learns only from the result that it was the demo one. Asks the daemon once, if at all.
void set_model(const ToolContext& context, ToolCall& call, std::span<json::object> envelopes);
/// Fills the envelope's `next`: the MCP call and the shell command to make now.
void set_next(const ToolContext& context, json::object& envelope);
/// `next` in words: "Next call: status {...}; or in a shell: ponder wait ID".
std::string next_in_words(const json::object& envelope);
/// What the job's state is, where it stands in the queue or in its work, in a few lines, and in one
/// more what else the envelope knows: a client may show its model the text alone.
std::string describe(const json::object& envelope);

/// The answer of a completed job, from `offset`; or why there is none, as an error with the
/// partial's size.
ToolResult answer_result(const ToolContext& context, ToolCall& call, json::object envelope,
                         std::int64_t offset, std::int64_t limit, const std::string& note);
/// The error for a job whose answer was wanted and that has none.
ToolResult no_answer_result(const ToolContext& context, ToolCall& call, json::object envelope,
                            const std::string& note);
/// "[page 1 of 5: ...]\n", or nothing if the page is the whole text.
std::string page_line(const TextPage& page, std::int64_t limit, std::string_view id,
                      std::string_view part);

/// nullopt if `id` has the form of one, else the tool error.
std::optional<ToolResult> check_id(std::string_view id);

}  // namespace ponder::mcp
