// Long file: both directions of every message stand side by side, so that one cannot change alone.
#include "engine/generator/protocol.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <utility>

#include "engine/base/utf8.h"

namespace ponder::protocol {
namespace {

constexpr std::int64_t kMost = INT64_MAX;
constexpr JsonLimits kLimits{kMaxPayload, 128};

// The type byte. Requests and replies do not share numbers, so that a crossed wire is noticed.
enum Type : std::uint8_t {
  kPlan = 1,
  kTokenize,
  kStart,
  kCancel,
  kPing,
  kAnswerNow,
  kHello = 65,
  kRefused,
  kPlanned,
  kTokenized,
  kStarted,
  kPrefill,
  kDelta,
  kToolCall,
  kEnded,
  kPong,
  kMemory,
};

tl::unexpected<Error> broken(std::string_view what) {
  return fail(ErrorCode::engine_error,
              fmt::format("a frame between daemon and worker is broken: {}", what));
}

/// Errors of fields are the other end's fault here, not a caller's.
template <class T>
Result<T> strict(Result<T> result) {
  if (!result) return broken(result.error().message);
  return result;
}

Result<std::uint64_t> id_field(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (v && v->is_uint64()) return v->as_uint64();
  if (v && v->is_int64() && v->as_int64() >= 0) return static_cast<std::uint64_t>(v->as_int64());
  return broken(fmt::format("\"{}\" must be an id", key));
}

Result<std::string> text_field(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_string()) return broken(fmt::format("\"{}\" must be a string", key));
  return std::string(v->as_string());
}

Result<std::int64_t> count_field(const json::object& o, std::string_view key) {
  if (!has_field(o, key)) return broken(fmt::format("\"{}\" is missing", key));
  return strict(int_field(o, key, 0, 0, kMost));
}

Result<double> measure_field(const json::object& o, std::string_view key) {
  if (!has_field(o, key)) return broken(fmt::format("\"{}\" is missing", key));
  return strict(number_field(o, key, 0, 0, 1e18));
}

Result<const json::object*> object_field(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_object()) return broken(fmt::format("\"{}\" must be an object", key));
  return &v->as_object();
}

Result<std::vector<std::int32_t>> ids_field(const json::object& o, std::string_view key) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_array()) return broken(fmt::format("\"{}\" must be an array of ids", key));
  std::vector<std::int32_t> ids;
  ids.reserve(v->as_array().size());
  for (const json::value& id : v->as_array()) {
    if (!id.is_int64() || id.as_int64() < 0 || id.as_int64() > INT32_MAX)
      return broken(fmt::format("\"{}\" must be an array of ids", key));
    ids.push_back(static_cast<std::int32_t>(id.as_int64()));
  }
  return ids;
}

json::array ids_array(const std::vector<std::int32_t>& ids) {
  json::array out;
  out.reserve(ids.size());
  for (const std::int32_t id : ids)
    out.emplace_back(id);
  return out;
}

/// A measurement as JSON can carry it: infinities and the undefined become 0.
double finite(double d) {
  return std::isfinite(d) ? d : 0.0;
}

json::object encode_request(const GenerationRequest& r) {
  json::object o{{"chat", encode(r.chat)},
                 {"sampling", encode(r.sampling)},
                 {"budgets", encode(r.budgets)},
                 {"ignore_eos", r.ignore_eos}};
  if (r.raw_prompt) o["raw_prompt"] = *r.raw_prompt;
  if (r.on_limit == OnLimit::answer) o["answer_on_limit"] = true;
  if (!r.schema.empty()) o["schema"] = r.schema;
  if (!r.resume.empty()) o["resume"] = ids_array(r.resume);
  return o;
}

Result<GenerationRequest> decode_request(const json::object& o) {
  GenerationRequest r;
  TRY(const json::object* chat, object_field(o, "chat"));
  TRY(r.chat, strict(decode_chat_request(*chat)));
  TRY(const json::object* sampling, object_field(o, "sampling"));
  TRY(r.sampling, strict(decode_sampling(*sampling)));
  TRY(const json::object* budgets, object_field(o, "budgets"));
  TRY(r.budgets, strict(decode_budgets(*budgets)));
  TRY(r.ignore_eos, strict(bool_field(o, "ignore_eos", false)));
  if (has_field(o, "raw_prompt")) {
    TRY(r.raw_prompt, text_field(o, "raw_prompt"));
  }
  TRY(const bool answer, strict(bool_field(o, "answer_on_limit", false)));
  if (answer) r.on_limit = OnLimit::answer;
  if (has_field(o, "schema")) {
    TRY(const json::object* schema, object_field(o, "schema"));
    r.schema = *schema;
  }
  if (has_field(o, "resume")) {
    TRY(r.resume, ids_field(o, "resume"));
  }
  return r;
}

json::object encode_error(const Error& e) {
  json::object details;
  for (const auto& [key, value] : e.details)
    details[key] = value;
  return {{"code", to_string(e.code)},
          {"message", e.message},
          {"hint", e.hint},
          {"param", e.param},
          {"details", std::move(details)}};
}

Result<Error> decode_error(const json::object& o) {
  Error e;
  TRY(const std::string code, text_field(o, "code"));
  e.code = error_code_from(code);
  TRY(e.message, text_field(o, "message"));
  TRY(e.hint, text_field(o, "hint"));
  TRY(e.param, text_field(o, "param"));
  TRY(const json::object* details, object_field(o, "details"));
  if (details->size() > 64) return broken("too many details of an error");
  for (const auto& [key, value] : *details) {
    if (!value.is_int64()) return broken("a detail of an error is not a whole number");
    e.details[std::string(key)] = value.as_int64();
  }
  return e;
}

/// Bytes that may be part of a character, as JSON can carry them.
std::string hex_of(std::string_view bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  }
  return out;
}

Result<std::string> bytes_of_hex(const json::value& value) {
  const auto digit = [](char c) { return c >= 'a' && c <= 'f' ? c - 'a' + 10 : c - '0'; };
  const json::string* text = value.if_string();
  if (!text || text->size() % 2 != 0 ||
      std::string_view(*text).find_first_not_of("0123456789abcdef") != std::string_view::npos)
    return broken("a token's bytes must be in hexadecimal");
  std::string out;
  for (std::size_t i = 0; i < text->size(); i += 2)
    out += static_cast<char>(digit((*text)[i]) * 16 + digit((*text)[i + 1]));
  return out;
}

/// [id, logarithm, bytes], and after the one taken those in its place.
json::array encode_logprob(std::int32_t id, double logprob, std::string_view bytes) {
  return {id, finite(logprob), hex_of(bytes)};
}

json::array encode_logprobs(const std::vector<TokenLogprobs>& all) {
  json::array out;
  for (const TokenLogprobs& one : all) {
    json::array row;  // not braces: compilers differ on whether they nest one array or copy it
    row.push_back(encode_logprob(one.id, one.logprob, one.bytes));
    for (std::size_t i = 0; i < one.top.size(); ++i)
      row.push_back(encode_logprob(one.top[i].first, one.top[i].second,
                                   i < one.top_bytes.size() ? one.top_bytes[i] : ""));
    out.push_back(std::move(row));
  }
  return out;
}

Result<std::vector<TokenLogprobs>> decode_logprobs(const json::value& value) {
  const auto wrong = [] { return broken("\"logprobs\" are malformed"); };
  if (!value.is_array()) return wrong();
  std::vector<TokenLogprobs> all;
  for (const json::value& row : value.as_array()) {
    if (!row.is_array() || row.as_array().empty()) return wrong();
    TokenLogprobs one;
    bool first = true;
    for (const json::value& entry : row.as_array()) {
      const json::array* a = entry.if_array();
      if (!a || a->size() != 3 || !a->at(0).is_int64() || a->at(0).as_int64() < 0 ||
          a->at(0).as_int64() > INT32_MAX || !a->at(1).is_number())
        return wrong();
      const auto id = static_cast<std::int32_t>(a->at(0).as_int64());
      const auto logprob = a->at(1).to_number<double>();
      TRY(std::string bytes, bytes_of_hex(a->at(2)));
      if (std::exchange(first, false)) {
        one.id = id;
        one.logprob = logprob;
        one.bytes = std::move(bytes);
      } else {
        one.top.emplace_back(id, logprob);
        one.top_bytes.push_back(std::move(bytes));
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

json::object encode_plan(const PromptPlan& p) {
  return {{"prompt_tokens", p.prompt_tokens},
          {"n_ctx", p.n_ctx},
          {"reasoning_budget", p.reasoning_budget},
          {"answer_budget", p.answer_budget},
          {"total_budget", p.total_budget},
          {"effort_used", p.effort_used},
          {"effort_by", p.effort_by}};
}

Result<PromptPlan> decode_plan(const json::object& o) {
  PromptPlan p;
  TRY(p.prompt_tokens, count_field(o, "prompt_tokens"));
  TRY(p.n_ctx, count_field(o, "n_ctx"));
  TRY(p.reasoning_budget, count_field(o, "reasoning_budget"));
  TRY(p.answer_budget, count_field(o, "answer_budget"));
  TRY(p.total_budget, count_field(o, "total_budget"));
  TRY(p.effort_used, text_field(o, "effort_used"));
  TRY(p.effort_by, text_field(o, "effort_by"));
  return p;
}

json::object encode_memory(const ContextMemory& m) {
  return {{"budget", m.budget},
          {"free", m.free},
          {"sequence_bytes", m.sequence_bytes},
          {"page_bytes", m.page_bytes},
          {"page_tokens", m.page_tokens}};
}

Result<ContextMemory> decode_memory(const json::object& o) {
  ContextMemory m;
  TRY(m.budget, id_field(o, "budget"));
  TRY(m.free, id_field(o, "free"));
  TRY(m.sequence_bytes, id_field(o, "sequence_bytes"));
  TRY(m.page_bytes, id_field(o, "page_bytes"));
  TRY(m.page_tokens, count_field(o, "page_tokens"));
  if (m.page_tokens < 1) return broken("\"page_tokens\" must be at least 1");
  return m;
}

json::object encode_usage(const Usage& u) {
  return {{"prompt_tokens", u.prompt_tokens},
          {"cached_tokens", u.cached_tokens},
          {"reasoning_tokens", u.reasoning_tokens},
          {"answer_tokens", u.answer_tokens},
          {"drafted", u.drafted},
          {"accepted", u.accepted},
          {"ttft_s", finite(u.ttft_s)},
          {"prefill_tokens_per_s", finite(u.prefill_tokens_per_s)},
          {"tokens_per_s", finite(u.tokens_per_s)}};
}

Result<Usage> decode_usage(const json::object& o) {
  Usage u;
  TRY(u.prompt_tokens, count_field(o, "prompt_tokens"));
  TRY(u.cached_tokens, count_field(o, "cached_tokens"));
  TRY(u.reasoning_tokens, count_field(o, "reasoning_tokens"));
  TRY(u.answer_tokens, count_field(o, "answer_tokens"));
  TRY(u.drafted, count_field(o, "drafted"));
  TRY(u.accepted, count_field(o, "accepted"));
  TRY(u.ttft_s, measure_field(o, "ttft_s"));
  TRY(u.prefill_tokens_per_s, measure_field(o, "prefill_tokens_per_s"));
  TRY(u.tokens_per_s, measure_field(o, "tokens_per_s"));
  return u;
}

/// Only these a worker may say; the others are for the daemon to find out.
constexpr std::array kWorkerFinishes{
    Finish::end_token,           Finish::stop_string, Finish::output_limit,
    Finish::reasoning_exhausted, Finish::repetition,  Finish::stream_lost,
    Finish::cancelled,           Finish::no_memory,   Finish::failed};

struct Encoded {
  Type type;
  json::object payload;
};

// One overload for each message, in both directions.
Encoded encode_body(const PlanCall& m) {
  return {kPlan, {{"call", m.call}, {"request", encode_request(m.request)}}};
}
Encoded encode_body(const TokenizeCall& m) {
  return {kTokenize, {{"call", m.call}, {"text", m.text}, {"special", m.special}}};
}
Encoded encode_body(const Start& m) {
  return {kStart, {{"id", m.id}, {"request", encode_request(m.request)}}};
}
Encoded encode_body(const Cancel& m) {
  return {kCancel, {{"id", m.id}}};
}
Encoded encode_body(const Ping& m) {
  return {kPing, {{"number", m.number}}};
}
Encoded encode_body(const AnswerNow& m) {
  return {kAnswerNow, {{"id", m.id}}};
}
Encoded encode_body(const Hello& m) {
  return {kHello,
          {{"version", m.version},
           {"id", m.model.id},
           {"class", m.model.model_class},
           {"path", m.model.path},
           {"n_ctx", m.model.n_ctx},
           {"device", m.model.device},
           {"memory", encode_memory(m.memory)}}};
}
Encoded encode_body(const Refused& m) {
  return {kRefused, {{"error", encode_error(m.error)}}};
}
Encoded encode_body(const Planned& m) {
  json::object o{{"call", m.call}};
  if (m.plan)
    o["plan"] = encode_plan(*m.plan);
  else
    o["error"] = encode_error(m.plan.error());
  return {kPlanned, std::move(o)};
}
Encoded encode_body(const Tokenized& m) {
  json::object o{{"call", m.call}};
  if (m.ids)
    o["ids"] = ids_array(*m.ids);
  else
    o["error"] = encode_error(m.ids.error());
  return {kTokenized, std::move(o)};
}
Encoded encode_body(const Of<Started>& m) {
  json::object o{{"id", m.id},
                 {"plan", encode_plan(m.event.plan)},
                 {"cached_tokens", m.event.cached_tokens},
                 {"cache_path", m.event.cache_path},
                 {"miss_reason", m.event.miss_reason}};
  if (m.event.diverged_at) o["diverged_at"] = *m.event.diverged_at;
  return {kStarted, std::move(o)};
}
Encoded encode_body(const Of<PrefillProgress>& m) {
  return {kPrefill, {{"id", m.id}, {"done", m.event.done}, {"total", m.event.total}}};
}
Encoded encode_body(const Of<Delta>& m) {
  json::object o{{"id", m.id},
                 {"channel", m.event.channel == Channel::reasoning ? "reasoning" : "answer"},
                 {"text", m.event.text},
                 {"tokens", ids_array(m.event.tokens)}};
  if (!m.event.logprobs.empty()) o["logprobs"] = encode_logprobs(m.event.logprobs);
  if (m.event.forced_answer) o["forced_answer"] = true;
  return {kDelta, std::move(o)};
}
Encoded encode_body(const Of<ToolCallMade>& m) {
  return {kToolCall,
          {{"id", m.id},
           {"call_id", m.event.call.id},
           {"name", m.event.call.name},
           {"arguments", m.event.call.arguments}}};
}
Encoded encode_body(const Of<Ended>& m) {
  json::object o{
      {"id", m.id}, {"finish", to_string(m.event.finish)}, {"usage", encode_usage(m.event.usage)}};
  if (m.event.error) o["error"] = encode_error(*m.event.error);
  if (m.event.forced_answer) o["forced_answer"] = true;
  return {kEnded, std::move(o)};
}
Encoded encode_body(const Pong& m) {
  return {kPong, {{"number", m.number}}};
}
Encoded encode_body(const Memory& m) {
  return {kMemory, encode_memory(m.memory)};
}

template <class Message>
Result<std::string> encode_frame(const Message& message) {
  const Encoded body = std::visit([](const auto& m) { return encode_body(m); }, message);
  std::string payload = to_json(body.payload);
  // Structure is ASCII, so bad bytes can only stand in texts.
  if (!is_valid_utf8(payload)) payload = replace_invalid(payload);
  if (payload.size() > kMaxPayload)
    return fail(ErrorCode::too_large,
                fmt::format("the request has {} bytes; the engine takes at most {}", payload.size(),
                            kMaxPayload),
                "send less text");
  std::string frame;
  frame.reserve(payload.size() + 5);
  for (int shift = 0; shift < 32; shift += 8)
    frame += static_cast<char>((payload.size() >> shift) & 0xFF);
  frame += static_cast<char>(body.type);
  frame += payload;
  return frame;
}

template <class T, class Decode>
Result<Result<T>> value_or_error(const json::object& o, std::string_view key, Decode decode) {
  if (has_field(o, "error")) {
    TRY(const json::object* object, object_field(o, "error"));
    TRY(Error error, decode_error(*object));
    return Result<T>(fail(std::move(error)));
  }
  Result<T> value = decode(o, key);
  if (!value) return fail(std::move(value).error());
  return Result<T>(std::move(*value));
}

Result<FromWorker> decode_hello(const json::object& o) {
  Hello m;
  TRY(m.version, count_field(o, "version"));
  if (m.version != kVersion)
    return broken(
        fmt::format("the worker speaks version {} and the daemon {}", m.version, kVersion));
  TRY(m.model.id, text_field(o, "id"));
  TRY(m.model.model_class, text_field(o, "class"));
  TRY(m.model.path, text_field(o, "path"));
  TRY(m.model.n_ctx, count_field(o, "n_ctx"));
  TRY(m.model.device, text_field(o, "device"));
  TRY(const json::object* memory, object_field(o, "memory"));
  TRY(m.memory, decode_memory(*memory));
  return m;
}

Result<FromWorker> decode_planned(const json::object& o) {
  Planned m;
  TRY(m.call, id_field(o, "call"));
  TRY(m.plan,
      value_or_error<PromptPlan>(
          o, "plan", [](const json::object& in, std::string_view key) -> Result<PromptPlan> {
            TRY(const json::object* plan, object_field(in, key));
            return decode_plan(*plan);
          }));
  return m;
}

Result<FromWorker> decode_tokenized(const json::object& o) {
  Tokenized m;
  TRY(m.call, id_field(o, "call"));
  TRY(m.ids, value_or_error<std::vector<std::int32_t>>(o, "ids", ids_field));
  return m;
}

Result<FromWorker> decode_started(const json::object& o) {
  Of<Started> m;
  TRY(m.id, id_field(o, "id"));
  TRY(const json::object* plan, object_field(o, "plan"));
  TRY(m.event.plan, decode_plan(*plan));
  TRY(m.event.cached_tokens, count_field(o, "cached_tokens"));
  TRY(m.event.cache_path, text_field(o, "cache_path"));
  TRY(m.event.miss_reason, text_field(o, "miss_reason"));
  if (has_field(o, "diverged_at")) {
    TRY(m.event.diverged_at, count_field(o, "diverged_at"));
  }
  return m;
}

Result<FromWorker> decode_delta(const json::object& o) {
  Of<Delta> m;
  TRY(m.id, id_field(o, "id"));
  TRY(const std::string channel, text_field(o, "channel"));
  if (channel != "reasoning" && channel != "answer") return broken("\"channel\" is unknown");
  m.event.channel = channel == "reasoning" ? Channel::reasoning : Channel::answer;
  TRY(m.event.text, text_field(o, "text"));
  TRY(m.event.tokens, ids_field(o, "tokens"));
  if (const json::value* logprobs = o.if_contains("logprobs")) {
    TRY(m.event.logprobs, decode_logprobs(*logprobs));
  }
  TRY(m.event.forced_answer, strict(bool_field(o, "forced_answer", false)));
  return m;
}

Result<FromWorker> decode_tool_call(const json::object& o) {
  Of<ToolCallMade> m;
  TRY(m.id, id_field(o, "id"));
  TRY(m.event.call.id, text_field(o, "call_id"));
  TRY(m.event.call.name, text_field(o, "name"));
  TRY(const json::object* arguments, object_field(o, "arguments"));
  m.event.call.arguments = *arguments;
  return m;
}

Result<FromWorker> decode_ended(const json::object& o) {
  Of<Ended> m;
  TRY(m.id, id_field(o, "id"));
  TRY(const std::string word, text_field(o, "finish"));
  bool known = false;
  for (const Finish finish : kWorkerFinishes) {
    if (to_string(finish) != word) continue;
    m.event.finish = finish;
    known = true;
  }
  if (!known) return broken("\"finish\" is no ending that a worker may tell");
  TRY(const json::object* usage, object_field(o, "usage"));
  TRY(m.event.usage, decode_usage(*usage));
  if (has_field(o, "error")) {
    TRY(const json::object* error, object_field(o, "error"));
    TRY(m.event.error, decode_error(*error));
  }
  TRY(m.event.forced_answer, strict(bool_field(o, "forced_answer", false)));
  if ((m.event.finish == Finish::failed || m.event.finish == Finish::no_memory) && !m.event.error)
    return broken("a failure without its error");
  return m;
}

}  // namespace

Result<std::string> encode(const ToWorker& message) {
  return encode_frame(message);
}
Result<std::string> encode(const FromWorker& message) {
  return encode_frame(message);
}

Result<ToWorker> decode_to_worker(const Frame& frame) {
  TRY(const json::object o, strict(parse_json_object(frame.payload, kLimits)));
  switch (frame.type) {
    case kPlan: {
      PlanCall m;
      TRY(m.call, id_field(o, "call"));
      TRY(const json::object* request, object_field(o, "request"));
      TRY(m.request, decode_request(*request));
      return m;
    }
    case kTokenize: {
      TokenizeCall m;
      TRY(m.call, id_field(o, "call"));
      TRY(m.text, text_field(o, "text"));
      TRY(m.special, strict(bool_field(o, "special", false)));
      return m;
    }
    case kStart: {
      Start m;
      TRY(m.id, id_field(o, "id"));
      TRY(const json::object* request, object_field(o, "request"));
      TRY(m.request, decode_request(*request));
      return m;
    }
    case kCancel: {
      Cancel m;
      TRY(m.id, id_field(o, "id"));
      return m;
    }
    case kPing: {
      Ping m;
      TRY(m.number, id_field(o, "number"));
      return m;
    }
    case kAnswerNow: {
      AnswerNow m;
      TRY(m.id, id_field(o, "id"));
      return m;
    }
    default:
      return broken(fmt::format("type {} is unknown", frame.type));
  }
}

Result<FromWorker> decode_from_worker(const Frame& frame) {
  TRY(const json::object o, strict(parse_json_object(frame.payload, kLimits)));
  switch (frame.type) {
    case kHello:
      return decode_hello(o);
    case kRefused: {
      Refused m;
      TRY(const json::object* error, object_field(o, "error"));
      TRY(m.error, decode_error(*error));
      return m;
    }
    case kPlanned:
      return decode_planned(o);
    case kTokenized:
      return decode_tokenized(o);
    case kStarted:
      return decode_started(o);
    case kPrefill: {
      Of<PrefillProgress> m;
      TRY(m.id, id_field(o, "id"));
      TRY(m.event.done, count_field(o, "done"));
      TRY(m.event.total, count_field(o, "total"));
      return m;
    }
    case kDelta:
      return decode_delta(o);
    case kToolCall:
      return decode_tool_call(o);
    case kEnded:
      return decode_ended(o);
    case kPong: {
      Pong m;
      TRY(m.number, id_field(o, "number"));
      return m;
    }
    case kMemory: {
      Memory m;
      TRY(m.memory, decode_memory(o));
      return m;
    }
    default:
      return broken(fmt::format("type {} is unknown", frame.type));
  }
}

Result<std::optional<Frame>> FrameReader::next() {
  constexpr std::size_t kHead = 5;
  const std::size_t have = buffer_.size() - read_;
  if (have < kHead) return std::optional<Frame>();
  std::size_t length = 0;
  for (std::size_t i = 0; i < 4; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(buffer_[read_ + i])) << (8 * i);
  if (length > kMaxPayload) return broken(fmt::format("a length of {} bytes", length));
  if (have < kHead + length) return std::optional<Frame>();
  Frame frame{static_cast<std::uint8_t>(buffer_[read_ + 4]), buffer_.substr(read_ + kHead, length)};
  read_ += kHead + length;
  if (read_ == buffer_.size() || read_ > (1u << 20)) {
    buffer_.erase(0, read_);
    read_ = 0;
  }
  return std::optional<Frame>(std::move(frame));
}

}  // namespace ponder::protocol
