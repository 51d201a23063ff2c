#include "jobs/envelope.h"

#include <fmt/core.h>

#include <algorithm>

#include "engine/base/clock.h"
#include "jobs/running_job.h"

namespace ponder::jobs {
namespace {

json::value or_null(const std::string& text) {
  return text.empty() ? json::value() : json::value(text);
}
json::value time_or_null(std::int64_t wall_ms) {
  return wall_ms == 0 ? json::value() : json::value(rfc3339(wall_ms));
}
double seconds(std::int64_t ms) {
  return static_cast<double>(std::max<std::int64_t>(0, ms)) / 1000;
}

/// `out[key]` of facts, where it is already in the envelope's shape; nested objects are merged.
void overlay(json::object& out, const json::object& facts) {
  for (const auto& fact : facts) {
    json::value* slot = out.if_contains(fact.key());
    if (!slot) continue;
    if (slot->is_object() && fact.value().is_object()) {
      overlay(slot->as_object(), fact.value().as_object());
    } else {
      *slot = fact.value();
    }
  }
}

json::object empty_envelope() {
  json::object out;
  for (const char* key :
       {"job_id", "state", "reason", "phase", "prefill_done", "prefill_total", "waiting_for",
        "label", "workspace", "created_at", "started_at", "ended_at", "queue_s", "run_s",
        "effort_requested", "effort", "effort_by"})
    out[key] = nullptr;
  out["tokens"] = {{"prompt", nullptr},
                   {"cached", nullptr},
                   {"reasoning", nullptr},
                   {"answer", nullptr},
                   {"reserved", nullptr}};
  out["cache"] = {{"path", nullptr}, {"miss_reason", nullptr}, {"diverged_at", nullptr}};
  for (const char* key :
       {"ttft_s", "prefill_tokens_per_s", "tokens_per_s", "drafted", "accepted", "answer",
        "reasoning_chars", "total_chars", "next_offset", "truncated", "forced_answer", "position"})
    out[key] = nullptr;
  out["eta_s"] = {{"p50", nullptr}, {"p90", nullptr}};
  for (const char* key : {"energy_j", "model", "model_class", "device", "degraded", "build",
                          "parent_id", "attempt", "pinned", "note", "error"})
    out[key] = nullptr;
  out["next"] = {{"mcp", nullptr}, {"shell", nullptr}};
  return out;
}

json::object call(const char* tool, json::object arguments, std::string shell) {
  json::object mcp;
  mcp["tool"] = tool;
  mcp["arguments"] = std::move(arguments);
  json::object next;
  next["mcp"] = std::move(mcp);
  next["shell"] = std::move(shell);
  return next;
}

/// The literal call to make now.
json::object next_call(const JobRow& row) {
  const std::string& id = row.id;
  switch (row.state) {
    case State::queued:
    case State::running:
      return call("status", {{"job_id", id}, {"wait_s", 50}}, "ponder wait " + id);
    case State::completed:
      return call("result", {{"job_id", id}}, "ponder result " + id);
    case State::expired:
      return {{"mcp", nullptr}, {"shell", nullptr}};
    default:
      break;
  }
  if (row.answer_chars > 0 || row.reasoning_chars > 0) {
    const char* part = row.answer_chars > 0 ? "partial" : "reasoning";
    return call("result", {{"job_id", id}, {"part", part}},
                fmt::format("ponder result --part {} {}", part, id));
  }
  if (row.reason == Reason::deadline)  // it ran, and said nothing yet
    return call("submit", {{"continue_from", id}, {"mode", "resume"}},
                "ponder continue --mode resume " + id);
  return call("health", {}, "ponder health");
}

void write_text_fields(json::object& out, const JobRow& row, const EnvelopeView& view) {
  std::int64_t answer_chars = row.answer_chars;
  std::int64_t reasoning_chars = row.reasoning_chars;
  if (view.running) {
    answer_chars = view.running->text().chars(Channel::answer);
    reasoning_chars = view.running->text().chars(Channel::reasoning);
  }
  out["reasoning_chars"] = reasoning_chars;
  out["total_chars"] = answer_chars;
  if (!is_terminal(row.state) || row.state == State::expired) return;
  const bool shown = view.answer && answer_chars <= kInlineAnswerChars;
  if (shown) out["answer"] = *view.answer;
  // Text that exists and is not shown: a cut answer must not look like a whole one, so that of a
  // job which did not complete is never here.
  const bool left_out = !shown && answer_chars > 0;
  out["truncated"] = left_out;
  if (left_out) out["next_offset"] = 0;
}

void write_run_fields(json::object& out, const JobRow& row, const EnvelopeView& view) {
  const std::int64_t run_ms = view.running ? view.running->run_ms(view.steady_ms) : row.run_ms;
  const std::int64_t until = row.ended_ms != 0 ? row.ended_ms : view.now_ms;
  // By the wall clock, which alone outlives a daemon: where it went back, nothing is known.
  out["queue_s"] = seconds(std::max<std::int64_t>(0, until - row.created_ms - run_ms));
  if (row.started_ms != 0) out["run_s"] = seconds(run_ms);
  if (!view.running) return;
  out["phase"] = view.running->phase();
  if (view.running->phase() == "prefill") {
    if (const auto& prefill = view.running->prefill()) {
      out["prefill_done"] = prefill->done;
      out["prefill_total"] = prefill->total;
    }
  }
  json::object& tokens = out["tokens"].as_object();
  tokens["reasoning"] = view.running->reasoning_tokens();
  tokens["answer"] = view.running->answer_tokens();
}
}  // namespace

std::string join_notes(const std::string& a, const std::string& b) {
  if (a.empty() || b.empty()) return a + b;
  return a + "; " + b;
}

json::object envelope(const JobRow& row, const EnvelopeView& view) {
  json::object out = empty_envelope();
  overlay(out, row.facts);
  out["job_id"] = row.id;
  out["state"] = to_string(row.state);
  if (row.state != State::expired) out["reason"] = or_null(std::string(to_string(row.reason)));
  if (row.state == State::queued)
    out["waiting_for"] = view.waiting_for.empty() ? "turn" : view.waiting_for;
  out["label"] = or_null(row.label);
  out["workspace"] = or_null(row.workspace);
  out["created_at"] = time_or_null(row.created_ms);
  out["started_at"] = time_or_null(row.started_ms);
  out["ended_at"] = time_or_null(row.ended_ms);
  out["effort_requested"] = row.effort_requested;
  if (out["effort"].is_null()) {
    const auto effort = parse_effort(row.effort_requested);
    out["effort"] = effort ? to_string(*effort) : row.effort_requested;
  }
  write_run_fields(out, row, view);
  write_text_fields(out, row, view);
  if (out["forced_answer"].is_null()) out["forced_answer"] = false;
  if (view.position && row.state == State::queued) out["position"] = *view.position;
  if (view.eta) out["eta_s"] = {{"p50", view.eta->p50_s}, {"p90", view.eta->p90_s}};
  out["parent_id"] = or_null(row.parent_id);
  out["attempt"] = row.attempt;
  out["pinned"] = row.pinned;
  out["note"] =
      or_null(join_notes(row.state == State::expired ? row.summary : row.note, view.note));
  if (!row.error_code.empty())
    out["error"] = {{"code", row.error_code},
                    {"message", row.error_message},
                    {"hint", or_null(row.error_hint)}};
  out["next"] = next_call(row);
  return out;
}

void note_plan(json::object& facts, const PromptPlan& plan) {
  json::object tokens;
  if (const json::value* old = facts.if_contains("tokens")) tokens = old->as_object();
  tokens["prompt"] = plan.prompt_tokens;
  tokens["reserved"] = plan.total_budget;
  facts["tokens"] = std::move(tokens);
  if (!plan.effort_used.empty()) facts["effort"] = plan.effort_used;
  if (!plan.effort_by.empty()) facts["effort_by"] = plan.effort_by;
}

void note_cache(json::object& facts, const Started& started) {
  json::object& tokens =
      facts["tokens"].is_object() ? facts["tokens"].as_object() : facts["tokens"].emplace_object();
  tokens["cached"] = started.cached_tokens;
  facts["cache"] = {
      {"path", or_null(started.cache_path)},
      {"miss_reason", or_null(started.miss_reason)},
      {"diverged_at", started.diverged_at ? json::value(*started.diverged_at) : json::value()}};
}

void note_usage(json::object& facts, const Usage& usage) {
  json::object& tokens =
      facts["tokens"].is_object() ? facts["tokens"].as_object() : facts["tokens"].emplace_object();
  if (usage.prompt_tokens > 0) {
    tokens["prompt"] = usage.prompt_tokens;
    tokens["cached"] = usage.cached_tokens;
  }
  tokens["reasoning"] = usage.reasoning_tokens;
  tokens["answer"] = usage.answer_tokens;
  const auto measured = [&](const char* key, double value) {
    if (value > 0) facts[key] = value;
  };
  measured("ttft_s", usage.ttft_s);
  measured("prefill_tokens_per_s", usage.prefill_tokens_per_s);
  measured("tokens_per_s", usage.tokens_per_s);
  facts["drafted"] = usage.drafted;
  facts["accepted"] = usage.accepted;
}

void note_model(json::object& facts, const ModelInfo& model) {
  facts["model"] = or_null(model.id);
  facts["model_path"] = or_null(model.path);  // not told: tokens are of one model only
  facts["model_class"] = or_null(model.model_class);
  facts["device"] = or_null(model.device);
}

void note_build(json::object& facts, const std::string& build) {
  facts["build"] = or_null(build);
}

std::string text_fact(const json::object& facts, const char* key) {
  const json::value* value = facts.if_contains(key);
  return value && value->is_string() ? std::string(value->as_string()) : std::string();
}

bool is_model_of(const JobRow& row, const ModelInfo& model) {
  const auto is = [&](const char* key, const std::string& value) {
    const std::string known = text_fact(row.facts, key);
    return known.empty() || value.empty() || known == value;
  };
  return is("model", model.id) && is("model_path", model.path);
}

}  // namespace ponder::jobs
