#pragma once
// What the protocol needs to know of tools: that they have names and can be called. The tools
// themselves (mcp/tools) know nothing of JSON-RPC.
#include <memory>
#include <string>
#include <string_view>

#include "clients/cpp/daemon_client.h"
#include "engine/base/json.h"

namespace ponder::mcp {

/// Tells the client how a call is getting on, if it asked to be told. Thread-safe.
class Progress {
 public:
  virtual ~Progress() = default;
  /// Whether anybody listens; false makes looking up what to say needless.
  virtual bool wanted() const = 0;
  /// Reports that follow one another sooner are dropped.
  virtual int interval_ms() const = 0;
  /// At most 100 characters are sent.
  virtual void report(std::string_view message) = 0;
};

struct ToolCall {
  json::object arguments;
  std::string client_name;  ///< as the client calls itself, or ""
  Progress& progress;
  client::Interrupt& interrupt;  ///< triggered when nobody waits for the answer any more
};

/// What a call answers. A success has both halves, and they hold the same: clients show their
/// model one or the other. An error is text alone, since that is all that every client shows.
struct ToolResult {
  std::string text;
  json::object structured = {};
  bool is_error = false;
};

class ToolTable {
 public:
  virtual ~ToolTable() = default;
  /// The `tools` of tools/list, always in the same order.
  virtual const json::array& list() const = 0;
  virtual bool has(std::string_view name) const = 0;
  /// Blocks as long as the tool does. Called on a thread of its own, many at once. `name` must be
  /// in the table.
  virtual ToolResult call(std::string_view name, ToolCall& call) const = 0;
};

}  // namespace ponder::mcp
