#include "daemon/api/chat_request.h"

#include <fmt/core.h>

namespace ponder::daemon {
namespace {

tl::unexpected<Error> refuse(std::string param, std::string message, std::string hint = {}) {
  Error error{ErrorCode::bad_request, std::move(message), std::move(hint)};
  error.param = std::move(param);
  return fail(std::move(error));
}

std::string_view word(const json::object& object, std::string_view key) {
  const json::value* value = object.if_contains(key);
  return value && value->is_string() ? std::string_view(value->as_string()) : std::string_view();
}

Result<void> refuse_unsupported(const json::object& body) {
  TRY(const std::int64_t n, int_field(body, "n", 1, 1, 128));
  if (n != 1) return refuse("n", "only one choice is made for a request: \"n\" must be 1");
  if (const json::value* modalities = body.if_contains("modalities");
      modalities && modalities->is_array())
    for (const json::value& one : modalities->as_array())
      if (one != "text") return refuse("modalities", "this model writes text only");
  return {};
}

/// The schema that the answer must fit; empty: any text.
Result<json::object> response_schema(const json::object& body) {
  const json::value* format = body.if_contains("response_format");
  if (!format || format->is_null()) return json::object();
  const json::object* object = format->if_object();
  if (!object || word(*object, "type").empty())
    return refuse("response_format", "\"response_format\" must be an object with a \"type\"");
  const std::string_view type = word(*object, "type");
  if (type == "text") return json::object();
  if (type == "json_object") return json::object{{"type", "object"}};
  if (type != "json_schema")
    return refuse("response_format",
                  fmt::format("response_format \"{}\" is not supported; use \"text\", "
                              "\"json_object\" or \"json_schema\"",
                              type.substr(0, 40)));
  const json::value* wrapper = object->if_contains("json_schema");
  const json::value* schema =
      wrapper && wrapper->is_object() ? wrapper->as_object().if_contains("schema") : nullptr;
  if (!schema || !schema->is_object())
    return refuse("response_format",
                  "response_format \"json_schema\" needs \"json_schema\": {\"schema\": {...}}");
  // An empty schema is any JSON text; without a keyword it would mean that there is none.
  return schema->as_object().empty() ? json::object{{"allOf", json::array{true}}}
                                     : schema->as_object();
}

/// The tool of that name, or an empty text where the entry has none.
std::string_view tool_name(const json::value& tool) {
  const json::object* object = tool.if_object();
  const json::value* function = object ? object->if_contains("function") : nullptr;
  return function && function->is_object() ? word(function->as_object(), "name")
                                           : std::string_view();
}

Result<void> apply_tool_choice(const json::object& body, json::array& tools) {
  const json::value* choice = body.if_contains("tool_choice");
  if (!choice || choice->is_null()) return {};
  if (choice->is_string()) {
    const std::string_view text = choice->as_string();
    if (text == "none") {
      tools.clear();
      return {};
    }
    if (text == "required" && tools.empty())
      return refuse("tool_choice", "tool_choice \"required\" needs at least one tool");
    if (text == "auto" || text == "required") return {};
    return refuse("tool_choice", "\"tool_choice\" must be none, auto, required or a function");
  }
  const json::object* object = choice->if_object();
  if (!object) return refuse("tool_choice", "\"tool_choice\" must be a word or an object");
  if (word(*object, "type") != "function") return {};
  const std::string_view wanted = tool_name(*choice);
  for (const json::value& tool : tools) {
    if (wanted.empty() || tool_name(tool) != wanted) continue;
    json::value kept = tool;
    tools.clear();
    tools.push_back(std::move(kept));
    return {};
  }
  return refuse("tool_choice", "\"tool_choice\" names a function that is not among the tools");
}
}  // namespace

Result<ChatCall> read_chat_call(const json::object& body) {
  ChatCall call;
  TRY(call.stream, bool_field(body, "stream", false));
  if (const json::value* options = body.if_contains("stream_options");
      options && !options->is_null()) {
    if (!options->is_object())
      return refuse("stream_options", "\"stream_options\" must be an object");
    TRY(call.include_usage, bool_field(options->as_object(), "include_usage", false));
  }
  TRY_VOID(refuse_unsupported(body));
  TRY(call.request.chat, parse_chat_request(body));
  TRY_VOID(apply_tool_choice(body, call.request.chat.tools));
  TRY(call.request.sampling, parse_sampling(body));
  TRY(call.request.budgets, parse_budgets(body));
  TRY(call.request.schema, response_schema(body));
  if (!call.request.chat.effort) call.request.chat.effort = Effort{};
  return call;
}

}  // namespace ponder::daemon
