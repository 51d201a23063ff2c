#include "mcp/protocol/message.h"

namespace ponder::mcp {

std::variant<Message, StrayResponse, Fault> read_message(const json::value& value) {
  const json::object* object = value.if_object();
  if (!object) return Fault{kInvalidRequest, "a message is a JSON object"};

  Message message;
  if (const json::value* id = object->if_contains("id")) {
    if (!id->is_string() && !id->is_int64() && !id->is_uint64())
      return Fault{kInvalidRequest, "an id is a string or an integer"};
    message.id = *id;
  }
  const json::value* version = object->if_contains("jsonrpc");
  if (!version || !version->is_string() || version->get_string() != "2.0")
    return Fault{kInvalidRequest, "\"jsonrpc\" must be \"2.0\"", message.id};

  const json::value* method = object->if_contains("method");
  if (!method && (object->contains("result") || object->contains("error"))) return StrayResponse{};
  if (!method || !method->is_string())
    return Fault{kInvalidRequest, "\"method\" must be a string", message.id};
  message.method = std::string(method->get_string());

  if (const json::value* params = object->if_contains("params"); params && !params->is_null()) {
    if (!params->is_object())
      return Fault{kInvalidParams, "\"params\" must be an object", message.id};
    message.params = params->get_object();
  }
  return message;
}

json::object error_message(const Fault& fault) {
  json::object error{{"code", fault.code}, {"message", fault.message}};
  if (fault.data) error["data"] = *fault.data;
  json::object message{{"jsonrpc", "2.0"}};
  if (fault.id) message["id"] = *fault.id;
  message["error"] = std::move(error);
  return message;
}

json::object result_message(const json::value& id, json::object result) {
  return {{"jsonrpc", "2.0"}, {"id", id}, {"result", std::move(result)}};
}

json::object notification(std::string_view method, json::object params) {
  return {{"jsonrpc", "2.0"}, {"method", method}, {"params", std::move(params)}};
}

}  // namespace ponder::mcp
