#pragma once
// JSON-RPC 2.0: what is a message, and the errors of the protocol. Pure functions.
// Specification: https://www.jsonrpc.org/specification, narrowed by MCP (ids are strings or
// integers, params are objects).
#include <optional>
#include <string>
#include <variant>

#include "engine/base/json.h"

namespace ponder::mcp {

constexpr int kParseError = -32700;
constexpr int kInvalidRequest = -32600;
constexpr int kMethodNotFound = -32601;
constexpr int kInvalidParams = -32602;
constexpr int kInternalError = -32603;
constexpr int kUnsupportedProtocolVersion = -32022;

struct Message {
  std::optional<json::value> id;  ///< a string or an integer; none: a notification
  std::string method;
  json::object params;
};

/// A client's answer to a request of ours. We send none, so these are ignored.
struct StrayResponse {};

/// What is wrong with a message. `id` is echoed if the message had a usable one; otherwise the
/// error has no id member (client libraries accept that, and refuse null).
struct Fault {
  int code = kInvalidRequest;
  std::string message;
  std::optional<json::value> id = {};
  std::optional<json::value> data = {};
};

std::variant<Message, StrayResponse, Fault> read_message(const json::value& value);

json::object error_message(const Fault& fault);
json::object result_message(const json::value& id, json::object result);
json::object notification(std::string_view method, json::object params);

}  // namespace ponder::mcp
