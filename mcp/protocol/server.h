#pragma once
// One MCP conversation: takes lines, sends messages. Everything but tools/call is answered on the
// caller's thread at once; each tools/call runs on its own thread, so that no wait holds up ping,
// tools/list or another call. Nothing is kept but the calls in flight and what `initialize` said.
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "mcp/protocol/era.h"
#include "mcp/protocol/message.h"
#include "mcp/protocol/message_sink.h"
#include "mcp/protocol/tool_table.h"

namespace ponder::mcp {

struct ServerOptions {
  std::string version;               ///< of serverInfo
  std::string instructions;          ///< at most 2,048 bytes: clients cut longer ones
  int max_calls = 32;                ///< beyond it a tool error
  int progress_interval_ms = 5'000;  ///< at most one progress notification in this time
};

class Server {
 public:
  /// `sink` and `tools` must outlive the server.
  Server(ServerOptions options, MessageSink& sink, const ToolTable& tools);
  /// Ends all waits and blocks until the calls have returned.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  /// One line of input. One thread only.
  void handle_line(const std::string& line);
  /// A line over `limit_bytes` was skipped.
  void handle_too_long(std::size_t limit_bytes);

  /// Blocks until no call is in flight, at most `timeout_ms`. True if none is.
  bool wait_idle(int timeout_ms);

 private:
  struct Call;
  /// Where the answer to one message goes: the sink, or the batch it came in.
  using Reply = std::function<void(std::optional<json::object>)>;

  void handle_value(const json::value& value, const Reply& reply);
  void handle_batch(const json::array& batch);
  void handle_request(const Message& request, const Reply& reply);
  void handle_legacy(const Message& request, const Reply& reply);
  void handle_modern(const Message& request, const Reply& reply);
  void handle_notification(const Message& message);
  void initialize(const Message& request, const Reply& reply);
  void list_tools(const Message& request, Era era, const Reply& reply);
  void call_tool(const Message& request, Era era, const Reply& reply);
  void run_call(const std::shared_ptr<Call>& call);
  json::object finished(Era era, json::object result) const;
  json::object tool_answer(Era era, ToolResult result) const;

  const ServerOptions options_;
  MessageSink& sink_;
  const ToolTable& tools_;
  std::string legacy_version_;      ///< agreed by `initialize`, or ""; reader's thread only
  std::string legacy_client_name_;  ///< the same

  std::mutex mutex_;
  std::condition_variable idle_;
  std::map<std::string, std::shared_ptr<Call>> in_flight_;  ///< by the id as JSON: "1" is not 1
  int threads_ = 0;  ///< call threads that have not returned, cancelled ones included
};

}  // namespace ponder::mcp
