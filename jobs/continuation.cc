#include "jobs/continuation.h"

#include <fmt/core.h>

#include <algorithm>

#include "jobs/envelope.h"

namespace ponder::jobs {
namespace {

// Closing the thinking may wait up to 64 tokens for the end of a sentence; the tag comes on top.
constexpr std::int64_t kToClose = 80;
// A text that went round in circles is cut to one of them, else the first token would end it again.
constexpr std::size_t kMaxPeriod = 256;
// Chunks of 250 ms are put together to such a size.
constexpr std::size_t kChunkBytes = 4096;
constexpr std::int64_t kMost = 1 << 20;  // tokens: the largest effort, more than any window

tl::unexpected<Error> about(const JobRow& row, std::string_view param, ErrorCode code,
                            std::string message, std::string hint) {
  Error error{code, std::move(message), std::move(hint)};
  error.param = std::string(param);
  error.job_id = row.id;
  return fail(std::move(error));
}

std::int64_t tokens_of(const std::vector<Chunk>& text, Channel channel) {
  std::int64_t count = 0;
  for (const Chunk& chunk : text)
    if (chunk.channel == channel) count += static_cast<std::int64_t>(chunk.tokens.size());
  return count;
}

/// How many of the tokens stand before the second round of the cycle at their end.
std::size_t before_the_cycle(const std::vector<std::int32_t>& tokens) {
  const std::size_t n = tokens.size();
  std::size_t keep = n;
  for (std::size_t period = 1; period <= kMaxPeriod && period * 2 <= n; ++period) {
    std::size_t same = 0;
    while (same + period < n && tokens[n - 1 - same] == tokens[n - 1 - same - period])
      ++same;
    if (same >= period * 2) keep = std::min(keep, n - same);
  }
  return keep;
}

void cut_cycle(std::vector<Chunk>& text) {
  std::vector<std::int32_t> tokens;
  for (const Chunk& chunk : text)
    tokens.insert(tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  const std::size_t keep = before_the_cycle(tokens);
  std::size_t count = tokens.size();
  while (!text.empty() && count > keep) {
    count -= text.back().tokens.size();
    text.pop_back();
  }
}

std::vector<Chunk> put_together(std::vector<Chunk> text) {
  std::vector<Chunk> out;
  for (Chunk& chunk : text) {
    const bool fits = !out.empty() && out.back().channel == chunk.channel &&
                      out.back().text.size() + chunk.text.size() <= kChunkBytes;
    if (!fits) {
      out.push_back(std::move(chunk));
      continue;
    }
    out.back().text += chunk.text;
    out.back().tokens.insert(out.back().tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
  }
  return out;
}

/// What the caller gave that the parent's request decides.
std::string not_used(const JobSpec& spec) {
  std::string names;
  const auto name = [&](bool given, const char* word) {
    if (given) names += fmt::format("{}{}", names.empty() ? "" : ", ", word);
  };
  name(!spec.task.empty(), "task");
  name(!spec.messages.empty(), "messages");
  name(!spec.context.empty(), "context");
  name(!spec.files.empty(), "files");
  name(!spec.system.empty(), "system");
  name(spec.effort.has_value(), "effort");
  name(spec.schema.has_value(), "schema");
  return names.empty() ? names : fmt::format("not used, as the job goes on as asked: {}", names);
}

/// An effort that is a number is a budget of thinking as well.
void lift_effort(Effort& effort, std::int64_t least, bool budget_by_word) {
  least = std::min(least, kMost);
  if (effort.budget) effort.budget = std::max(*effort.budget, least);
  if (!effort.budget && budget_by_word && thinks(effort)) effort.budget = least;
}

void budgets_to_resume(const JobSpec& spec, const JobRow& parent, const Carried& carried,
                       GenerationRequest& request) {
  const Budgets& given = spec.budgets;
  Budgets& budgets = request.budgets;
  const bool by_word = text_fact(parent.facts, "effort_by") == "budget";
  if (given.max_reasoning_tokens || given.max_answer_tokens || given.max_tokens) {
    budgets.defaulted = false;
    if (given.max_reasoning_tokens) {
      budgets.max_reasoning_tokens = carried.reasoning_tokens + *given.max_reasoning_tokens;
      lift_effort(*request.chat.effort, *budgets.max_reasoning_tokens, by_word);
    }
    if (given.max_answer_tokens)
      budgets.max_answer_tokens = carried.answer_tokens + *given.max_answer_tokens;
    budgets.max_tokens.reset();
    if (given.max_tokens) budgets.max_tokens = carried.tokens() + *given.max_tokens;
  }
  if (parent.reason == Reason::reasoning_exhausted && !given.max_reasoning_tokens) {
    budgets.max_reasoning_tokens.reset();
    if (!given.max_tokens) budgets.max_tokens.reset();
    lift_effort(*request.chat.effort, kMost, by_word);
  }
  if (parent.reason == Reason::output_limit && !given.max_answer_tokens) {
    budgets.max_answer_tokens.reset();
    if (!given.max_tokens) budgets.max_tokens.reset();
    if (carried.answer_tokens == 0) {  // both together were spent in thinking
      if (!given.max_reasoning_tokens) budgets.max_reasoning_tokens.reset();
      lift_effort(*request.chat.effort, kMost, by_word);
    }
  }
}

void budgets_to_answer(const JobSpec& spec, const JobRow& parent, const Carried& carried,
                       GenerationRequest& request) {
  Budgets& budgets = request.budgets;
  const std::int64_t thinking = carried.reasoning_tokens + kToClose;
  if (spec.budgets.max_answer_tokens)
    budgets.max_answer_tokens = carried.answer_tokens + *spec.budgets.max_answer_tokens;
  if (!spec.budgets.max_answer_tokens && carried.answer_tokens > 0 &&
      parent.reason == Reason::output_limit)
    budgets.max_answer_tokens.reset();
  // What was spent takes its part of the window whatever is asked for; only an answer budget that
  // was asked for now can be too much.
  budgets.max_reasoning_tokens = thinking;
  budgets.defaulted = !spec.budgets.max_answer_tokens;
  budgets.max_tokens = spec.budgets.max_tokens;
  if (budgets.max_tokens) *budgets.max_tokens += carried.tokens();
  lift_effort(*request.chat.effort, thinking, text_fact(parent.facts, "effort_by") == "budget");
}
}  // namespace

Result<void> refuse_continuation(const JobRow& parent, Mode mode) {
  const bool resume = mode == Mode::resume;
  switch (parent.state) {
    case State::expired:
      return about(parent, "continue_from", ErrorCode::gone,
                   "the job to go on from has expired: " + parent.summary,
                   "submit the whole question anew");
    case State::completed:
      return about(parent, "mode", ErrorCode::bad_request,
                   "the job is completed: nothing of it was cut",
                   fmt::format("read it: ponder result {}; to ask further use mode \"follow_up\"",
                               parent.id));
    case State::queued:
    case State::running:
      if (!resume) return {};
      return about(parent, "continue_from", ErrorCode::not_terminal,
                   fmt::format("the job is {} and goes on by itself", to_string(parent.state)),
                   fmt::format("wait for it: ponder wait {}", parent.id));
    default:
      break;
  }
  if (parent.reason == Reason::schema_invalid)
    return about(parent, "mode", ErrorCode::bad_request,
                 "the job ended by itself with an answer that does not fit its schema",
                 "use mode \"follow_up\" and ask for it in the right form");
  if (parent.reason == Reason::repetition && resume)
    return about(parent, "mode", ErrorCode::bad_request,
                 "the job's text went round in circles and would go on so",
                 "use mode \"answer_now\", or submit it again with another seed");
  return {};
}

Result<Continuation> continue_job(const JobSpec& spec, const JobRow& parent, StoredRequest request,
                                  std::vector<Chunk> text) {
  TRY_VOID(refuse_continuation(parent, spec.mode));
  Continuation out;
  out.note = not_used(spec);
  if (parent.reason == Reason::repetition) {
    cut_cycle(text);
    out.note += fmt::format("{}the circle at the end of the text was left out",
                            out.note.empty() ? "" : "; ");
  }
  while (!text.empty() && text.back().tokens.empty() && text.front().tokens.size() > 0)
    text.pop_back();  // it was held back until the end, and comes again
  text = put_together(std::move(text));
  Carried carried;
  for (const Chunk& chunk : text) {
    ++carried.chunks;
    carried.bytes += static_cast<std::int64_t>(chunk.text.size());
  }
  carried.reasoning_tokens = tokens_of(text, Channel::reasoning);
  carried.answer_tokens = tokens_of(text, Channel::answer);
  if (carried.bytes > 0 && carried.tokens() == 0)
    return about(parent, "continue_from", ErrorCode::bad_request,
                 "the tokens of the job are not stored, so it cannot go on from them",
                 "use mode \"follow_up\", or submit the whole question anew");

  GenerationRequest& generation = request.generation;
  if (!generation.chat.effort) generation.chat.effort = Effort{};
  if (spec.mode == Mode::resume) {
    budgets_to_resume(spec, parent, carried, generation);
  } else {
    request.answer_now = true;
    budgets_to_answer(spec, parent, carried, generation);
  }
  if (spec.on_limit == OnLimit::answer) generation.on_limit = OnLimit::answer;
  const json::value* forced = parent.facts.if_contains("forced_answer");
  request.forced_answer = forced && *forced == true;
  request.carried = carried;
  out.submission = {std::move(request), parent.effort_requested};
  out.text = std::move(text);
  return out;
}

}  // namespace ponder::jobs
