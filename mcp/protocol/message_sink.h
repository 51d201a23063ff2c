#pragma once
// Where messages to the client go. Every thread that answers shares one of these.
#include "engine/base/json.h"

namespace ponder::mcp {

class MessageSink {
 public:
  virtual ~MessageSink() = default;
  /// Sends one JSON-RPC message whole, never mixed with another. Thread-safe.
  virtual void send(const json::value& message) = 0;
};

}  // namespace ponder::mcp
