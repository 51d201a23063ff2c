// Requests to JSON and back, for the worker's protocol and the database. Strict: what encode()
// did not write is refused.
#include <fmt/core.h>

#include "engine/generator/chat_request.h"

namespace ponder {
namespace {

constexpr std::int64_t kMost = INT64_MAX;

tl::unexpected<Error> malformed(std::string_view key) {
  Error error{ErrorCode::bad_request, fmt::format("\"{}\" is malformed", key)};
  error.param = std::string(key);
  return fail(std::move(error));
}

json::object encode_call(const ToolCall& call) {
  return {{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}};
}

Result<ToolCall> decode_call(const json::value& value) {
  const json::object* object = value.if_object();
  const json::value* arguments = object ? object->if_contains("arguments") : nullptr;
  if (!arguments || !arguments->is_object()) return malformed("tool_calls");
  ToolCall call;
  TRY(call.id, string_field(*object, "id"));
  TRY(call.name, string_field(*object, "name"));
  call.arguments = arguments->as_object();
  return call;
}

json::object encode_message(const Message& message) {
  json::object object{{"role", message.role}, {"content", message.content}};
  if (message.reasoning_content) object["reasoning_content"] = *message.reasoning_content;
  if (!message.tool_calls.empty()) {
    json::array calls;
    for (const ToolCall& call : message.tool_calls)
      calls.push_back(encode_call(call));
    object["tool_calls"] = std::move(calls);
  }
  if (!message.tool_call_id.empty()) object["tool_call_id"] = message.tool_call_id;
  return object;
}

Result<Message> decode_message(const json::value& value) {
  const json::object* object = value.if_object();
  if (!object) return malformed("messages");
  Message message;
  TRY(message.role, string_field(*object, "role"));
  TRY(message.content, string_field(*object, "content"));
  if (has_field(*object, "reasoning_content")) {
    TRY(message.reasoning_content, string_field(*object, "reasoning_content"));
  }
  if (const json::value* calls = object->if_contains("tool_calls")) {
    if (!calls->is_array()) return malformed("tool_calls");
    for (const json::value& call : calls->as_array()) {
      TRY(ToolCall decoded, decode_call(call));
      message.tool_calls.push_back(std::move(decoded));
    }
  }
  TRY(message.tool_call_id, string_field(*object, "tool_call_id"));
  return message;
}

template <class T>
void put(json::object& object, std::string_view key, const std::optional<T>& value) {
  if (value) object[key] = *value;
}

Result<void> get(const json::object& object, std::string_view key, std::optional<double>& out) {
  if (!has_field(object, key)) return {};
  TRY(out, number_field(object, key, 0, -1e300, 1e300));
  return {};
}

Result<void> get(const json::object& object, std::string_view key,
                 std::optional<std::int64_t>& out) {
  if (!has_field(object, key)) return {};
  TRY(out, int_field(object, key, 0, -kMost, kMost));
  return {};
}

Result<void> get_logit_bias(const json::object& object, SamplingParams& params) {
  const json::value* biases = object.if_contains("logit_bias");
  if (!biases) return {};
  if (!biases->is_array()) return malformed("logit_bias");
  for (const json::value& entry : biases->as_array()) {
    const json::array* pair = entry.if_array();
    if (!pair || pair->size() != 2 || !pair->at(0).is_int64() || pair->at(0).as_int64() < 0 ||
        pair->at(0).as_int64() > INT32_MAX || !pair->at(1).is_number())
      return malformed("logit_bias");
    params.logit_bias.emplace_back(static_cast<std::int32_t>(pair->at(0).as_int64()),
                                   static_cast<float>(pair->at(1).to_number<double>()));
  }
  return {};
}

}  // namespace

json::object encode(const ChatRequest& request) {
  json::array messages;
  for (const Message& message : request.messages)
    messages.push_back(encode_message(message));
  json::object object{{"messages", std::move(messages)}};
  if (!request.tools.empty()) object["tools"] = request.tools;
  if (request.effort) object["effort"] = to_string(*request.effort);
  if (!request.template_arguments.empty())
    object["template_arguments"] = request.template_arguments;
  return object;
}

Result<ChatRequest> decode_chat_request(const json::object& object) {
  ChatRequest request;
  const json::value* messages = object.if_contains("messages");
  if (!messages || !messages->is_array()) return malformed("messages");
  for (const json::value& message : messages->as_array()) {
    TRY(Message decoded, decode_message(message));
    request.messages.push_back(std::move(decoded));
  }
  if (const json::value* tools = object.if_contains("tools")) {
    if (!tools->is_array()) return malformed("tools");
    request.tools = tools->as_array();
  }
  if (has_field(object, "effort")) {
    TRY(request.effort, parse_effort(object.at("effort")));
  }
  if (const json::value* arguments = object.if_contains("template_arguments")) {
    if (!arguments->is_object()) return malformed("template_arguments");
    request.template_arguments = arguments->as_object();
  }
  return request;
}

json::object encode(const SamplingParams& params) {
  json::object object;
  put(object, "temperature", params.temperature);
  put(object, "top_p", params.top_p);
  put(object, "top_k", params.top_k);
  put(object, "min_p", params.min_p);
  put(object, "presence_penalty", params.presence_penalty);
  put(object, "frequency_penalty", params.frequency_penalty);
  put(object, "repetition_penalty", params.repetition_penalty);
  put(object, "seed", params.seed);
  if (!params.stop.empty()) {
    json::array stops;
    for (const std::string& stop : params.stop)
      stops.emplace_back(stop);
    object["stop"] = std::move(stops);
  }
  if (!params.logit_bias.empty()) {
    json::array biases;
    for (const auto& [id, bias] : params.logit_bias)
      biases.push_back(json::array{id, static_cast<double>(bias)});
    object["logit_bias"] = std::move(biases);
  }
  put(object, "top_logprobs", params.top_logprobs);
  return object;
}

Result<SamplingParams> decode_sampling(const json::object& object) {
  SamplingParams params;
  TRY_VOID(get(object, "temperature", params.temperature));
  TRY_VOID(get(object, "top_p", params.top_p));
  if (has_field(object, "top_k")) {
    TRY(const std::int64_t top_k, int_field(object, "top_k", 0, INT32_MIN, INT32_MAX));
    params.top_k = static_cast<int>(top_k);
  }
  TRY_VOID(get(object, "min_p", params.min_p));
  TRY_VOID(get(object, "presence_penalty", params.presence_penalty));
  TRY_VOID(get(object, "frequency_penalty", params.frequency_penalty));
  TRY_VOID(get(object, "repetition_penalty", params.repetition_penalty));
  if (const json::value* seed = object.if_contains("seed"); seed && !seed->is_null()) {
    if (seed->is_uint64())
      params.seed = seed->as_uint64();
    else if (seed->is_int64() && seed->as_int64() >= 0)
      params.seed = static_cast<std::uint64_t>(seed->as_int64());
    else
      return malformed("seed");
  }
  if (const json::value* stops = object.if_contains("stop")) {
    if (!stops->is_array()) return malformed("stop");
    for (const json::value& stop : stops->as_array()) {
      if (!stop.is_string()) return malformed("stop");
      params.stop.emplace_back(stop.as_string());
    }
  }
  TRY_VOID(get_logit_bias(object, params));
  if (has_field(object, "top_logprobs")) {
    TRY(const std::int64_t top, int_field(object, "top_logprobs", 0, 0, 1024));
    params.top_logprobs = static_cast<int>(top);
  }
  return params;
}

json::object encode(const Budgets& budgets) {
  json::object object;
  put(object, "max_reasoning_tokens", budgets.max_reasoning_tokens);
  put(object, "max_answer_tokens", budgets.max_answer_tokens);
  put(object, "max_tokens", budgets.max_tokens);
  if (budgets.defaulted) object["defaulted"] = true;
  return object;
}

Result<Budgets> decode_budgets(const json::object& object) {
  Budgets budgets;
  TRY_VOID(get(object, "max_reasoning_tokens", budgets.max_reasoning_tokens));
  TRY_VOID(get(object, "max_answer_tokens", budgets.max_answer_tokens));
  TRY_VOID(get(object, "max_tokens", budgets.max_tokens));
  TRY(budgets.defaulted, bool_field(object, "defaulted", false));
  return budgets;
}

}  // namespace ponder
