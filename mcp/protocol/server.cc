#include "mcp/protocol/server.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <exception>
#include <system_error>
#include <thread>

#include "engine/base/log.h"
#include "engine/base/utf8.h"

namespace ponder::mcp {
namespace {
constexpr int kMaxDepth = 64;
constexpr std::size_t kMaxLineBytes = 8u << 20;
constexpr int kMaxBatch = 64;
constexpr std::int64_t kListTtlMs = 3'600'000;  // the list changes only with the program
constexpr int kProgressMessageChars = 100;

json::object server_info(const std::string& version) {
  return {{"name", "ponder"}, {"title", "Ponder"}, {"version", version}};
}

/// Sends notifications/progress with strictly increasing values, no more often than agreed, and
/// none once the call is over.
class TokenProgress final : public Progress {
 public:
  TokenProgress(json::value token, MessageSink& sink, int interval_ms)
      : token_(std::move(token)), sink_(sink), interval_(interval_ms) {}

  bool wanted() const override { return !token_.is_null(); }
  int interval_ms() const override { return static_cast<int>(interval_.count()); }

  void report(std::string_view message) override {
    const std::lock_guard lock(mutex_);
    const auto now = std::chrono::steady_clock::now();
    if (over_ || !wanted() || now - last_ < interval_) return;
    last_ = now;
    const std::string_view shown =
        message.substr(0, byte_offset_of(message, kProgressMessageChars));
    sink_.send(
        notification("notifications/progress",
                     {{"progressToken", token_}, {"progress", ++count_}, {"message", shown}}));
  }

  void end() {
    const std::lock_guard lock(mutex_);
    over_ = true;
  }

 private:
  const json::value token_;  // null: the client did not ask
  MessageSink& sink_;
  const std::chrono::milliseconds interval_;
  std::mutex mutex_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  std::int64_t count_ = 0;
  bool over_ = false;
};

json::value progress_token(const Message& request) {
  const json::object* meta = meta_of(request);
  const json::value* token = meta ? meta->if_contains("progressToken") : nullptr;
  const bool usable = token && (token->is_string() || token->is_int64() || token->is_uint64());
  return usable ? *token : json::value();
}
}  // namespace

struct Server::Call {
  json::value id;
  Era era;
  std::string name;
  json::object arguments;
  std::string client_name;
  Reply reply;
  TokenProgress progress;
  client::Interrupt interrupt;
};

Server::Server(ServerOptions options, MessageSink& sink, const ToolTable& tools)
    : options_(std::move(options)), sink_(sink), tools_(tools) {}

Server::~Server() {
  std::unique_lock lock(mutex_);
  for (auto& [id, call] : in_flight_)
    call->interrupt.trigger();
  idle_.wait(lock, [this] { return threads_ == 0; });
}

bool Server::wait_idle(int timeout_ms) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                        [this] { return threads_ == 0; });
}

void Server::handle_too_long(std::size_t limit_bytes) {
  sink_.send(error_message(
      {kParseError,
       fmt::format("a message may have at most {} bytes; this one was skipped", limit_bytes)}));
}

void Server::handle_line(const std::string& line) {
  const Reply reply = [this](std::optional<json::object> message) {
    if (message) sink_.send(*message);
  };
  const auto value = parse_json(line, {.max_bytes = kMaxLineBytes, .max_depth = kMaxDepth});
  if (!value) return reply(error_message({kParseError, "parse error: " + value.error().message}));
  if (const json::array* batch = value->if_array()) {
    if (legacy_version_ == kBatchVersion) return handle_batch(*batch);
    return reply(error_message({kInvalidRequest,
                                "several messages in one array are not accepted "
                                "in this version of the protocol"}));
  }
  handle_value(*value, reply);
}

// The answers of a batch go out together, once the last of its calls has ended.
void Server::handle_batch(const json::array& batch) {
  if (batch.empty() || batch.size() > kMaxBatch)
    return sink_.send(
        error_message({kInvalidRequest, fmt::format("a batch holds 1 to {} messages", kMaxBatch)}));
  struct Answers {
    std::mutex mutex;
    json::array messages;
    std::size_t open = 0;
  };
  const auto answers = std::make_shared<Answers>();
  answers->open = batch.size();
  const Reply reply = [this, answers](std::optional<json::object> message) {
    const std::lock_guard lock(answers->mutex);
    if (message) answers->messages.emplace_back(std::move(*message));
    if (--answers->open == 0 && !answers->messages.empty()) sink_.send(answers->messages);
  };
  for (const json::value& value : batch)
    handle_value(value, reply);
}

/// Calls `reply` exactly once, now or when the call has ended; with nothing if nothing is due.
void Server::handle_value(const json::value& value, const Reply& reply) {
  auto read = read_message(value);
  if (const Fault* fault = std::get_if<Fault>(&read)) return reply(error_message(*fault));
  const Message* message = std::get_if<Message>(&read);
  if (message && message->id) return handle_request(*message, reply);
  if (message) handle_notification(*message);
  reply(std::nullopt);
}

void Server::handle_notification(const Message& message) {
  if (message.method != "notifications/cancelled") return;
  const json::value* id = message.params.if_contains("requestId");
  if (!id) return;
  // Only a call in flight can be cancelled; some clients also send this after the answer.
  const std::lock_guard lock(mutex_);
  const auto found = in_flight_.find(to_json(*id));
  if (found == in_flight_.end()) return;
  found->second->progress.end();
  found->second->interrupt.trigger();
  in_flight_.erase(found);  // whoever finds its entry gone sends no answer
}

void Server::handle_request(const Message& request, const Reply& reply) {
  const auto era = era_of(request);
  if (const Fault* fault = std::get_if<Fault>(&era)) return reply(error_message(*fault));
  if (std::get<Era>(era) == Era::modern) return handle_modern(request, reply);
  handle_legacy(request, reply);
}

void Server::handle_modern(const Message& request, const Reply& reply) {
  if (request.method == "tools/call") return call_tool(request, Era::modern, reply);
  if (request.method == "tools/list") return list_tools(request, Era::modern, reply);
  if (request.method == "server/discover") {
    json::object result{{"supportedVersions", json::array{kModernVersion}},
                        {"capabilities", json::object{{"tools", json::object{}}}},
                        {"instructions", options_.instructions},
                        {"ttlMs", kListTtlMs},
                        {"cacheScope", "public"}};
    return reply(result_message(*request.id, finished(Era::modern, std::move(result))));
  }
  // `initialize`, `ping` and what else 2026-07-28 took away end here too.
  reply(error_message({kMethodNotFound, "unknown method: " + request.method, request.id}));
}

void Server::handle_legacy(const Message& request, const Reply& reply) {
  if (request.method == "tools/call") return call_tool(request, Era::legacy, reply);
  if (request.method == "tools/list") return list_tools(request, Era::legacy, reply);
  if (request.method == "ping") return reply(result_message(*request.id, {}));
  if (request.method == "initialize") return initialize(request, reply);
  if (request.method == "server/discover")
    return reply(error_message({kInvalidParams,
                                fmt::format("server/discover needs _meta[\"{}\"]", kVersionKey),
                                request.id}));
  reply(error_message({kMethodNotFound, "unknown method: " + request.method, request.id}));
}

void Server::initialize(const Message& request, const Reply& reply) {
  const json::value* asked = request.params.if_contains("protocolVersion");
  if (!asked || !asked->is_string())
    return reply(error_message(
        {kInvalidParams, "initialize needs \"protocolVersion\", a string", request.id}));
  legacy_version_ = negotiate(asked->get_string());
  legacy_client_name_ = client_name_in(&request.params, "clientInfo");
  reply(result_message(*request.id, {{"protocolVersion", legacy_version_},
                                     {"capabilities", json::object{{"tools", json::object{}}}},
                                     {"serverInfo", server_info(options_.version)},
                                     {"instructions", options_.instructions}}));
}

void Server::list_tools(const Message& request, Era era, const Reply& reply) {
  // One page holds all, so no cursor was ever handed out; "" means the beginning.
  if (const json::value* cursor = request.params.if_contains("cursor");
      cursor && !cursor->is_null() && !(cursor->is_string() && cursor->get_string().empty()))
    return reply(error_message({kInvalidParams, "unknown cursor", request.id}));
  json::object result{{"tools", tools_.list()}};
  if (era == Era::modern) {
    result["ttlMs"] = kListTtlMs;
    result["cacheScope"] = "public";
  }
  reply(result_message(*request.id, finished(era, std::move(result))));
}

void Server::call_tool(const Message& request, Era era, const Reply& reply) {
  const json::value* name = request.params.if_contains("name");
  if (!name || !name->is_string())
    return reply(
        error_message({kInvalidParams, "tools/call needs \"name\", a string", request.id}));
  if (!tools_.has(name->get_string()))
    return reply(error_message(
        {kInvalidParams, "unknown tool: " + std::string(name->get_string()), request.id}));
  json::object arguments;
  if (const json::value* given = request.params.if_contains("arguments");
      given && !given->is_null()) {
    if (!given->is_object())
      return reply(error_message({kInvalidParams, "\"arguments\" must be an object", request.id}));
    arguments = given->get_object();
  }
  const std::string key = to_json(*request.id);
  std::unique_lock lock(mutex_);
  if (in_flight_.count(key) != 0) {
    lock.unlock();
    // Without the id: with it, the client would take this for the answer to the first call.
    return reply(error_message({kInvalidRequest, fmt::format("the id {} is in flight", key)}));
  }
  if (threads_ >= options_.max_calls) {
    lock.unlock();
    ToolResult refusal{
        fmt::format("Too many waits: {} calls are in flight, and no more are taken. "
                    "Wait for some of them to return, then call again. Jobs go on "
                    "in the meantime.",
                    options_.max_calls)};
    refusal.is_error = true;
    return reply(result_message(*request.id, tool_answer(era, std::move(refusal))));
  }
  const std::shared_ptr<Call> call(new Call{
      *request.id,
      era,
      std::string(name->get_string()),
      std::move(arguments),
      era == Era::modern ? client_name_in(meta_of(request), kClientInfoKey) : legacy_client_name_,
      reply,
      TokenProgress(progress_token(request), sink_, options_.progress_interval_ms),
      {}});
  in_flight_[key] = call;
  ++threads_;
  lock.unlock();
  try {
    std::thread([this, call] { run_call(call); }).detach();
  } catch (const std::system_error&) {
    lock.lock();
    in_flight_.erase(key);
    --threads_;
    lock.unlock();
    reply(error_message({kInternalError, "no thread could be started for the call", request.id}));
  }
}

void Server::run_call(const std::shared_ptr<Call>& call) {
  json::object message;
  try {
    ToolCall tool_call{std::move(call->arguments), call->client_name, call->progress,
                       call->interrupt};
    message = result_message(call->id, tool_answer(call->era, tools_.call(call->name, tool_call)));
  } catch (const std::exception& e) {
    log_error(fmt::format("{} failed: {}", call->name, e.what()));
    message = error_message({kInternalError, "internal error in " + call->name, call->id});
  }
  call->progress.end();
  bool cancelled = false;
  {
    // Out of the table before the answer is sent, so that a late `cancelled` finds nothing.
    const std::lock_guard lock(mutex_);
    const auto found = in_flight_.find(to_json(call->id));
    cancelled = found == in_flight_.end() || found->second != call;
    if (!cancelled) in_flight_.erase(found);
  }
  call->reply(cancelled ? std::nullopt : std::optional(std::move(message)));
  const std::lock_guard lock(mutex_);
  --threads_;
  idle_.notify_all();  // under the lock: the destructor may be waiting
}

json::object Server::finished(Era era, json::object result) const {
  if (era == Era::legacy) return result;
  json::object whole{{"resultType", "complete"}};
  for (auto& [key, value] : result)
    whole[key] = std::move(value);
  whole["_meta"] = json::object{{kServerInfoKey, server_info(options_.version)}};
  return whole;
}

json::object Server::tool_answer(Era era, ToolResult result) const {
  json::object answer;
  answer["content"] = json::array{json::object{{"type", "text"}, {"text", result.text}}};
  if (result.is_error) {
    answer["isError"] = true;
  } else {
    answer["structuredContent"] = std::move(result.structured);
    answer["isError"] = false;
  }
  return finished(era, std::move(answer));
}

}  // namespace ponder::mcp
