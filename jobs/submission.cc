#include "jobs/submission.h"

#include <algorithm>

#include "engine/base/ids.h"
#include "jobs/job_text.h"
#include "jobs/schema_check.h"

namespace ponder::jobs {
namespace {

constexpr std::int64_t kXhighReasoningTokens = 131072;
constexpr std::int64_t kXhighAnswerTokens = 8192;
// Whole in every JSON reader.
constexpr std::uint64_t kSeedMask = (std::uint64_t{1} << 53) - 1;

json::value sorted(const json::value& value) {
  if (const json::array* array = value.if_array()) {
    json::array out;
    for (const json::value& entry : *array)
      out.push_back(sorted(entry));
    return out;
  }
  if (const json::object* object = value.if_object()) {
    std::vector<std::string_view> keys;
    for (const auto& member : *object)
      keys.push_back(member.key());
    std::sort(keys.begin(), keys.end());
    json::object out;
    for (const std::string_view key : keys)
      out[key] = sorted(object->at(key));
    return out;
  }
  return value;
}

Effort default_effort(Lane lane) {
  return Effort{lane == Lane::ask ? Effort::Word::medium : Effort::Word::xhigh};
}

json::object encode(const Carried& carried) {
  return {{"bytes", carried.bytes},
          {"chunks", carried.chunks},
          {"reasoning_tokens", carried.reasoning_tokens},
          {"answer_tokens", carried.answer_tokens}};
}

tl::unexpected<Error> damaged() {
  return fail(ErrorCode::storage, "the stored request of this job is damaged",
              "submit it again; check the disk");
}

Result<Carried> decode_carried(const json::value& value) {
  if (!value.is_object()) return damaged();
  const json::object& object = value.as_object();
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  Carried carried;
  TRY(carried.bytes, int_field(object, "bytes", 0, 0, kMost));
  TRY(carried.chunks, int_field(object, "chunks", 0, 0, kMost));
  TRY(carried.reasoning_tokens, int_field(object, "reasoning_tokens", 0, 0, kMost));
  TRY(carried.answer_tokens, int_field(object, "answer_tokens", 0, 0, kMost));
  return carried;
}

/// The compiled schema as the engine takes it, to which an empty one means that there is none.
json::object engine_schema(const json::value& compiled) {
  if (compiled.is_null()) return {};
  if (compiled.is_object() && !compiled.as_object().empty()) return compiled.as_object();
  return {{"allOf", json::array{compiled}}};  // any JSON text
}
}  // namespace

std::string encode_request(const StoredRequest& request) {
  json::object out;
  out["chat"] = encode(request.generation.chat);
  out["sampling"] = encode(request.generation.sampling);
  out["budgets"] = encode(request.generation.budgets);
  out["schema"] = request.schema;
  if (request.generation.on_limit == OnLimit::answer) out["on_limit"] = "answer";
  if (request.answer_now) out["answer_now"] = true;
  if (request.forced_answer) out["forced_answer"] = true;
  if (request.carried.chunks > 0) out["carried"] = encode(request.carried);
  return to_json(out);
}

Result<StoredRequest> decode_request(std::string_view text) {
  TRY(json::object object, parse_json_object(text, {256u << 20, 96}));
  StoredRequest request;
  for (const std::string_view key : {"chat", "sampling", "budgets"})
    if (!object.contains(key) || !object.at(key).is_object()) return damaged();
  TRY(request.generation.chat, decode_chat_request(object.at("chat").as_object()));
  TRY(request.generation.sampling, decode_sampling(object.at("sampling").as_object()));
  TRY(request.generation.budgets, decode_budgets(object.at("budgets").as_object()));
  if (has_field(object, "schema")) request.schema = object.at("schema");
  request.generation.schema = engine_schema(request.schema);
  TRY(const std::string on_limit, string_field(object, "on_limit"));
  if (on_limit == "answer") request.generation.on_limit = OnLimit::answer;
  TRY(request.answer_now, bool_field(object, "answer_now", false));
  TRY(request.forced_answer, bool_field(object, "forced_answer", false));
  if (const json::value* carried = object.if_contains("carried")) {
    TRY(request.carried, decode_carried(*carried));
  }
  return request;
}

std::string body_hash(const JobSpec& spec) {
  json::object body;
  body["kind"] = to_string(spec.kind);
  ChatRequest chat;
  chat.messages = spec.messages;
  body["task"] = spec.task;
  body["messages"] = encode(chat);
  body["context"] = spec.context;
  json::array files;
  for (const FileText& file : spec.files)
    files.push_back(json::object{{"name", file.name}, {"text", file.text}});
  body["files"] = std::move(files);
  body["system"] = spec.system;
  body["effort"] = spec.effort ? json::value(to_string(*spec.effort)) : json::value();
  body["sampling"] = encode(spec.sampling);
  body["budgets"] = encode(spec.budgets);
  body["deadline_s"] = spec.deadline_s ? json::value(*spec.deadline_s) : json::value();
  body["on_limit"] = spec.on_limit == OnLimit::answer ? "answer" : "stop";
  body["schema"] = spec.schema ? *spec.schema : json::value();
  body["label"] = spec.label;
  body["workspace"] = spec.workspace;
  body["continue_from"] = spec.continue_from;
  body["mode"] = static_cast<int>(spec.mode);
  body["pin"] = spec.pin;
  return sha256_of(to_json(sorted(body)));
}

Result<Submission> prepare(const JobSpec& spec, const std::optional<ParentJob>& parent) {
  Submission out;
  Effort effort = default_effort(spec.kind);
  if (spec.effort) {
    effort = *spec.effort;
  } else if (parent) {
    TRY(effort, parse_effort(parent->effort));
  }
  GenerationRequest& generation = out.request.generation;
  if (spec.schema) {
    TRY(out.request.schema, compile_schema(*spec.schema));
    generation.schema = engine_schema(out.request.schema);
  }
  generation.on_limit = spec.on_limit;
  TRY(generation.chat.messages, build_messages(spec, parent ? &parent->turn : nullptr));
  generation.chat.effort = effort;
  out.effort = effort.given.empty() ? to_string(effort) : effort.given;
  generation.sampling = spec.sampling;
  if (!generation.sampling.seed) generation.sampling.seed = random_u64() & kSeedMask;
  generation.budgets = spec.budgets;
  const Budgets& given = spec.budgets;
  const bool none_given =
      !given.max_reasoning_tokens && !given.max_answer_tokens && !given.max_tokens;
  if (spec.kind == Lane::batch && none_given && effort == Effort{Effort::Word::xhigh}) {
    generation.budgets.max_reasoning_tokens = kXhighReasoningTokens;
    generation.budgets.max_answer_tokens = kXhighAnswerTokens;
    generation.budgets.defaulted = true;
  }
  return out;
}

ReadySpec make_ready(JobSpec spec) {
  ReadySpec ready{std::move(spec), {}, {}};
  ready.hash = body_hash(ready.spec);
  if (!ready.spec.continue_from.empty()) return ready;
  ready.alone = prepare(ready.spec, std::nullopt);
  if (*ready.alone) ready.request = encode_request((*ready.alone)->request);
  return ready;
}

}  // namespace ponder::jobs
