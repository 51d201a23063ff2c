#include "mcp/tools/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "engine/base/ids.h"
#include "engine/base/utf8.h"

namespace ponder::mcp {
namespace {
constexpr int kHealthMs = 2'000;
constexpr std::string_view kListCall =
    "Call status without arguments to list this workspace's jobs.";

/// What clients show their model of one result, measured with results of growing size:
/// Claude Code 2.1.332 takes about 25,000 tokens and moves more to a file with a 2 KB preview;
/// Cline 3.0.65 cuts the serialised result, both halves, at 8,000 characters; Codex 0.171.0 at
/// about 12 KB. 3,000 characters fit the smallest with room for the envelope.
struct ClientLimits {
  std::string_view name;
  std::int64_t page_chars;
  int list_length;
};
constexpr std::array<ClientLimits, 1> kKnownClients{{{"claude-code", 12'000, 20}}};
constexpr ClientLimits kOtherClients{"", 3'000, 10};

ClientLimits limits_of(std::string_view client_name) {
  for (const ClientLimits& known : kKnownClients)
    if (known.name == client_name) return known;
  return kOtherClients;
}

struct Advice {
  std::string_view reason;
  std::string_view text;
};
constexpr std::array<Advice, 13> kAdvice{{
    {"output_limit",
     "The answer hit its limit: submit with continue_from this job and mode resume goes on, or "
     "submit again with a larger max_answer_tokens."},
    {"reasoning_exhausted",
     "The thinking spent its budget: submit with continue_from this job and mode resume thinks on, "
     "mode answer_now answers from what it has; or submit again with a larger "
     "max_reasoning_tokens, a lower effort or a smaller task."},
    {"stream_lost",
     "The model's output broke off: submit with continue_from this job and mode resume, or submit "
     "again."},
    {"deadline",
     "The running time was over: submit with continue_from this job and mode resume or answer_now, "
     "or submit again with a larger deadline_s."},
    {"repetition",
     "The model repeated itself: submit with continue_from this job and mode answer_now, reword "
     "the "
     "task or use another effort."},
    {"schema_invalid",
     "The answer did not match the schema: read the partial, simplify the schema."},
    {"stalled",
     "The engine stopped making tokens and was replaced: submit with continue_from this job and "
     "mode resume, or submit again."},
    {"engine_error", "Call health to see the engine's state."},
    {"out_of_memory", "It did not fit into memory: submit a smaller prompt or smaller budgets."},
    {"storage", "The daemon could not write its database: free disk space."},
    {"bad_request", "Correct the request and submit again."},
    {"model_missing", "Call health: no usable model is installed."},
    {"poison", "It killed the engine three times: do not submit it unchanged."},
}};

std::string_view advice_for(std::string_view reason) {
  for (const Advice& a : kAdvice)
    if (a.reason == reason) return a.text;
  return {};
}

/// A sentence from the daemon, cut so that what follows it fits into an error text too.
std::string with_dot(std::string sentence) {
  if (const std::size_t end = byte_offset_of(sentence, 2'000); end < sentence.size())
    sentence = sentence.substr(0, end) + "...";
  if (!sentence.empty() && sentence.back() != '.' && sentence.back() != '!') sentence += '.';
  return sentence;
}

/// "running (thinking)", "incomplete (deadline)", "queued (memory)".
std::string state_words(const json::object& envelope) {
  std::string words = text_of(envelope, "state");
  for (const char* detail : {"reason", "phase", "waiting_for"})
    if (const std::string text = text_of(envelope, detail); !text.empty())
      return fmt::format("{} ({})", words, text);
  return words;
}

std::string tokens_words(const json::object& envelope) {
  const json::object& tokens = object_of(envelope, "tokens");
  const std::int64_t cached = whole_of(tokens, "cached");
  return fmt::format("{} prompt{}, {} reasoning, {} answer", whole_of(tokens, "prompt"),
                     cached > 0 ? fmt::format(" ({} cached)", cached) : "",
                     whole_of(tokens, "reasoning"), whole_of(tokens, "answer"));
}

std::string seconds_words(const json::object& envelope) {
  return fmt::format("{:.1f} s", number_of(envelope, "run_s"));
}

std::string demo_words(const json::object& envelope) {
  return text_of(envelope, "model_class") == "demo" ? "; demo model: not for real work" : "";
}

std::string duration_words(double seconds) {
  if (seconds < 1) return "less than 1 s";
  if (seconds < 90) return fmt::format("{:.0f} s", seconds);
  if (seconds < 5400) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string call_words(std::string_view tool, const json::object& arguments) {
  return fmt::format("{} {}", tool, to_json(arguments));
}

/// What the envelope knows beside what describe() and the status line say in words. A no says as
/// much as being left out.
std::string other_facts(const json::object& envelope) {
  constexpr std::array<std::string_view, 17> kSaid{
      "job_id",        "state",         "reason", "phase", "waiting_for", "label",
      "position",      "prefill_done",  "eta_s",  "next",  "effort",      "tokens",
      "prefill_total", "forced_answer", "run_s",  "note",  "answer"};
  std::string facts;
  const auto add = [&facts](std::string_view name, const json::value& value) {
    if (value.is_null() || value == json::value(false) || value == json::value(json::array()))
      return;
    facts += fmt::format("{}{} {}", facts.empty() ? "" : ", ", name, to_json(value));
  };
  for (const auto& [key, value] : envelope) {
    const std::string_view name(key.data(), key.size());
    if (name == "error") {
      const json::object& error = object_of(envelope, "error");
      if (has_field(error, "code")) add("error.code", error.at("code"));
    } else if (std::find(kSaid.begin(), kSaid.end(), name) == kSaid.end()) {
      add(name, value);
    }
  }
  if (const json::object& tokens = object_of(envelope, "tokens"); has_field(tokens, "reserved"))
    add("tokens.reserved", tokens.at("reserved"));
  return facts.empty() ? "" : "Also known: " + facts + ".\n";
}

void put_note(json::object& holder, const std::string& note) {
  std::string whole = text_of(holder, "note");
  add_note(whole, note);
  if (whole.empty()) {
    holder["note"] = nullptr;
  } else {
    holder["note"] = whole;
  }
}
}  // namespace

std::int64_t page_chars(std::string_view client_name) {
  return limits_of(client_name).page_chars;
}
int list_length(std::string_view client_name) {
  return limits_of(client_name).list_length;
}

std::string status_line(const json::object& envelope) {
  std::string line = fmt::format("job {} {}; effort {}; tokens {}; {}", text_of(envelope, "job_id"),
                                 state_words(envelope), text_of(envelope, "effort"),
                                 tokens_words(envelope), seconds_words(envelope));
  if (flag_of(envelope, "forced_answer")) line += "; forced answer: the thinking was cut short";
  line += demo_words(envelope);
  if (const std::string note = text_of(envelope, "note"); !note.empty()) line += "; note: " + note;
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

std::string progress_message(const json::object& envelope) {
  const json::object& tokens = object_of(envelope, "tokens");
  const std::string phase = text_of(envelope, "phase");
  if (text_of(envelope, "state") == "queued")
    return fmt::format("queued, position {}", whole_of(envelope, "position", 1));
  if (phase == "prefill" && whole_of(envelope, "prefill_total") > 0)
    return fmt::format("prefill, {} of {} tokens", whole_of(envelope, "prefill_done"),
                       whole_of(envelope, "prefill_total"));
  return fmt::format("{}, {} tokens", phase.empty() ? text_of(envelope, "state") : phase,
                     whole_of(tokens, "reasoning") + whole_of(tokens, "answer"));
}

ToolResult job_result(std::string text, json::object envelope, const std::string& note) {
  put_note(envelope, note);
  if (!text.empty() && text.back() != '\n') text += '\n';
  text += "---\n" + status_line(envelope);
  return {std::move(text), std::move(envelope)};
}

ToolResult jobs_result(std::string text, std::vector<json::object> jobs, const std::string& note) {
  json::object structured;
  std::vector<std::pair<std::string, int>> counts;
  bool is_demo = false;
  json::array list;
  for (json::object& job : jobs) {
    const std::string state = text_of(job, "state");
    const auto known = std::find_if(counts.begin(), counts.end(),
                                    [&](const auto& each) { return each.first == state; });
    if (known == counts.end()) {
      counts.emplace_back(state, 1);
    } else {
      ++known->second;
    }
    is_demo = is_demo || text_of(job, "model_class") == "demo";
    list.emplace_back(std::move(job));
  }
  std::string line = fmt::format("{} job{}", list.size(), list.size() == 1 ? "" : "s");
  for (const auto& [state, count] : counts)
    line += fmt::format("{} {} {}", &state == &counts.front().first ? ":" : ",", count, state);
  if (is_demo) line += "; demo model: not for real work";
  if (!note.empty()) line += "; note: " + note;
  structured["jobs"] = std::move(list);
  if (!note.empty()) structured["note"] = note;
  if (!text.empty() && text.back() != '\n') text += '\n';
  return {text + "---\n" + line, std::move(structured)};
}

ToolResult error_result(std::string text) {
  const std::size_t end = byte_offset_of(text, static_cast<std::int64_t>(kErrorCharsMax));
  if (end < text.size()) text = text.substr(0, byte_offset_of(text, kErrorCharsMax - 3)) + "...";
  ToolResult result{replace_invalid(text)};
  result.is_error = true;
  return result;
}

std::string with_full_command(const ToolContext& context, const std::string& hint) {
  constexpr std::string_view kName = "ponder ";
  std::string out;
  std::size_t from = 0;
  for (std::size_t at = 0; (at = hint.find(kName, at)) != std::string::npos; at += kName.size()) {
    const std::string_view before = std::string_view(hint).substr(0, at);
    const bool is_command = before.empty() || before.ends_with(": ") || before.ends_with('`') ||
                            before.ends_with("&& ") || before.ends_with("; ");
    if (!is_command) continue;
    out += hint.substr(from, at - from) + context.ponder;
    from = at + kName.size() - 1;
  }
  return out + hint.substr(from);
}

ToolResult error_result(const ToolContext& context, const Error& error, std::string_view id) {
  std::string text;
  if (!id.empty()) text += fmt::format("Job {}: ", id);
  text += with_dot(error.message);
  for (const auto& [name, value] : error.details)
    text += fmt::format(" {} = {}.", name, value);
  if (!error.hint.empty())
    text += fmt::format(" To mend it: {}", with_dot(with_full_command(context, error.hint)));
  switch (error.code) {
    case ErrorCode::job_unknown:
    case ErrorCode::gone:
      text += fmt::format(" {}", kListCall);
      break;
    case ErrorCode::queue_full:
      text += " The queue is full: try again later.";
      break;
    case ErrorCode::idempotency_mismatch:
      text += " Use another idempotency_key, or send exactly the first request again.";
      break;
    case ErrorCode::context_length_exceeded:
      if (error.hint.empty()) text += " Shorten the prompt or lower the budgets, then call again.";
      break;
    default:
      break;
  }
  if (!id.empty() && error.code != ErrorCode::job_unknown)
    text += fmt::format(" The job is kept by the daemon. Next call: {}",
                        call_words("status", {{"job_id", id}}));
  return error_result(std::move(text));
}

void set_model(const ToolContext& context, ToolCall& call, std::span<json::object> envelopes) {
  std::optional<json::object> model;
  for (json::object& envelope : envelopes) {
    if (is_terminal(text_of(envelope, "state")) || has_field(envelope, "model_class")) continue;
    if (!model) {
      const auto health = context.daemon.health(kHealthMs, &call.interrupt);
      model = health ? object_of(*health, "model") : json::object{};
    }
    for (const auto& [key, from] : {std::pair{"model", "id"}, std::pair{"model_class", "class"}})
      if (const std::string value = text_of(*model, from); !value.empty()) envelope[key] = value;
  }
}

void set_next(const ToolContext& context, json::object& envelope) {
  const std::string id = text_of(envelope, "job_id");
  const std::string state = text_of(envelope, "state");
  json::object arguments{{"job_id", id}};
  std::string tool = "result";
  std::string shell = fmt::format("{} result {}", context.ponder, id);
  if (state == "expired") {
    envelope["next"] = nullptr;
    return;
  }
  if (!is_terminal(state)) {
    tool = "status";
    arguments["wait_s"] = static_cast<int>(kStatusWaitMaxS);
    shell = fmt::format("{} wait {}", context.ponder, id);
  } else if (state != "completed") {
    // Without a word of the answer, what there is to read is the thinking.
    const bool only_thought =
        whole_of(envelope, "total_chars", -1) == 0 && whole_of(envelope, "reasoning_chars") > 0;
    const char* part = only_thought ? "reasoning" : "partial";
    arguments["part"] = part;
    shell = fmt::format("{} result --part {} {}", context.ponder, part, id);
  } else if (const std::int64_t next = whole_of(envelope, "next_offset", -1); next > 0) {
    arguments["offset"] = next;
  }
  envelope["next"] = json::object{
      {"mcp", json::object{{"tool", tool}, {"arguments", std::move(arguments)}}}, {"shell", shell}};
}

std::string next_in_words(const json::object& envelope) {
  const json::object& next = object_of(envelope, "next");
  const json::object& mcp = object_of(next, "mcp");
  if (mcp.empty()) return {};
  const bool waits = text_of(mcp, "tool") == "status";
  return fmt::format("Next call: {}; or in a {}shell: {}",
                     call_words(text_of(mcp, "tool"), object_of(mcp, "arguments")),
                     waits ? "background " : "", text_of(next, "shell"));
}

std::string describe(const json::object& envelope) {
  const std::string label = text_of(envelope, "label");
  std::string text =
      fmt::format("Job {}{} is {}", text_of(envelope, "job_id"),
                  label.empty() ? "" : fmt::format(" \"{}\"", label), state_words(envelope));
  if (const std::int64_t position = whole_of(envelope, "position"); position > 0)
    text += fmt::format(", position {} in the queue", position);
  if (whole_of(envelope, "prefill_total") > 0 && text_of(envelope, "phase") == "prefill")
    text += fmt::format(", {} of {} prompt tokens read", whole_of(envelope, "prefill_done"),
                        whole_of(envelope, "prefill_total"));
  text += ".\n";
  if (const json::object& eta = object_of(envelope, "eta_s"); has_field(eta, "p90"))
    text +=
        fmt::format("Expected to end in {} (half of such jobs), {} (nine of ten).\n",
                    duration_words(number_of(eta, "p50")), duration_words(number_of(eta, "p90")));
  if (const std::string state = text_of(envelope, "state"); is_terminal(state)) {
    const json::object& error = object_of(envelope, "error");
    if (const std::string message = text_of(error, "message"); !message.empty())
      text += with_dot(message) + "\n";
    if (const std::string hint = text_of(error, "hint"); !hint.empty())
      text += "To mend it: " + with_dot(hint) + "\n";
  }
  text += other_facts(envelope);
  if (const std::string next = next_in_words(envelope); !next.empty()) text += next + "\n";
  return text;
}

std::string page_line(const TextPage& page, std::int64_t limit, std::string_view id,
                      std::string_view part) {
  const std::int64_t shown = count_code_points(page.text);
  if (page.offset == 0 && page.next_offset < 0) return {};
  if (page.offset >= page.total_chars)
    return fmt::format("[there is nothing at offset {}: the text has {} characters]\n", page.offset,
                       page.total_chars);
  const std::int64_t size = std::max<std::int64_t>(1, limit);
  const std::int64_t number = (page.offset + size - 1) / size + 1;
  const std::int64_t left = std::max<std::int64_t>(0, page.total_chars - page.offset - shown);
  const std::int64_t pages = number + (left + size - 1) / size;
  std::string line = fmt::format("[page {} of {}: characters {} to {} of {}", number, pages,
                                 page.offset, page.offset + shown, page.total_chars);
  if (page.next_offset >= 0) {
    json::object arguments{{"job_id", id}, {"offset", page.next_offset}};
    if (part != "answer") arguments["part"] = part;
    line += "; the next page: " + call_words("result", arguments);
  } else {
    line += "; this is the last page";
  }
  return line + "]\n";
}

ToolResult answer_result(const ToolContext& context, ToolCall& call, json::object envelope,
                         std::int64_t offset, std::int64_t limit, const std::string& note) {
  if (text_of(envelope, "state") != "completed")
    return no_answer_result(context, call, std::move(envelope), note);
  const std::string id = text_of(envelope, "job_id");
  const auto page = get_text(context, call, id, "answer", offset, limit);
  if (!page) return error_result(context, page.error(), id);
  envelope["answer"] = page->text;
  envelope["total_chars"] = page->total_chars;
  envelope["truncated"] = page->next_offset >= 0;
  if (page->next_offset >= 0) {
    envelope["next_offset"] = page->next_offset;
    set_next(context, envelope);
  } else {
    envelope["next_offset"] = nullptr;
    envelope["next"] = nullptr;
  }
  return job_result(page_line(*page, limit, id, "answer") + page->text, std::move(envelope), note);
}

ToolResult no_answer_result(const ToolContext& context, ToolCall& call, json::object envelope,
                            const std::string& note) {
  const std::string id = text_of(envelope, "job_id");
  const std::string state = text_of(envelope, "state");
  if (state != "expired") {
    const auto partial = get_text(context, call, id, "partial", 0, 1);
    if (partial) envelope["total_chars"] = partial->total_chars;
  }
  set_next(context, envelope);
  put_note(envelope, note);
  std::string text;
  if (state == "expired") {
    text = fmt::format("Job {} has expired: its texts are gone.", id);
  } else if (is_terminal(state)) {
    text = fmt::format("Job {} has no complete answer: it ended {}.", id, state_words(envelope));
    if (const json::object& error = object_of(envelope, "error"); has_field(error, "message")) {
      text += " " + with_dot(text_of(error, "message"));
      if (has_field(error, "hint"))
        text += fmt::format(" To mend it: {}",
                            with_dot(with_full_command(context, text_of(error, "hint"))));
    }
    if (const auto advice = advice_for(text_of(envelope, "reason")); !advice.empty())
      text += fmt::format(" {}", advice);
    if (state == "interrupted") {
      if (!has_field(object_of(envelope, "error"), "message"))
        text += " The daemon stopped or died while it ran.";
      text +=
          " To get an answer, submit with continue_from this job and mode resume, or ask again; a "
          "job given to submit goes on by itself.";
    }
  } else {
    text = fmt::format("Job {} is still {}: it has no answer yet.", id, state_words(envelope));
  }
  if (state != "expired") {
    text += fmt::format(" Partial answer so far: {} characters; reasoning: {} characters.",
                        whole_of(envelope, "total_chars"), whole_of(envelope, "reasoning_chars"));
  }
  if (const std::string own = text_of(envelope, "note"); !own.empty())
    text += fmt::format(" Note: {}", with_dot(own));
  if (const std::string next = next_in_words(envelope); !next.empty()) text += "\n" + next;
  if (state == "expired") text += fmt::format(" {}", kListCall);
  return error_result(text + "\n---\n" + status_line(envelope));
}

std::optional<ToolResult> check_id(std::string_view id) {
  if (is_job_id(id)) return std::nullopt;
  return error_result(
      fmt::format("There is no job \"{}\": an id has exactly 26 characters of a-z "
                  "and 0-9. {}",
                  id.substr(0, byte_offset_of(id, 60)), kListCall));
}

}  // namespace ponder::mcp
