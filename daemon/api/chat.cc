// POST /v1/chat/completions, whole and streamed. A request is planned first (so that a prompt that
// does not fit is a 400 and not a broken stream), then waits for its turn in the queue. The turn
// ends with its connection.
#include <fmt/core.h>

#include <mutex>
#include <utility>

#include "daemon/api/api.h"
#include "daemon/api/chat_request.h"
#include "daemon/api/error_map.h"
#include "engine/base/ids.h"
#include "engine/base/utf8.h"

namespace ponder::daemon {
namespace {

/// For a client that closed only the sending side of its connection, and so still reads.
Error client_left() {
  return {ErrorCode::cancelled,
          "the turn ended because its client closed the sending side of its connection",
          "keep both sides open until the answer is there"};
}

/// What an ending means to this door: a finish_reason, or an error.
Result<std::string> finish_reason(const Ended& ended, bool has_tool_calls, bool gone) {
  switch (ended.finish) {
    case Finish::end_token:
    case Finish::stop_string:
      return std::string(has_tool_calls ? "tool_calls" : "stop");
    case Finish::output_limit:
    case Finish::reasoning_exhausted:
      return std::string("length");
    case Finish::repetition:
      return fail(ErrorCode::engine_error, "the model repeated itself without end and was stopped",
                  "change the prompt, or raise temperature or repetition_penalty");
    case Finish::stream_lost:
      return fail(ErrorCode::stream_lost, "the output ended before the model had finished",
                  "send the request again");
    case Finish::stalled:
      return fail(ErrorCode::stream_lost, "the model stopped writing and its process was replaced",
                  "send the request again; raise stall_s in ponder.toml if this machine is slow");
    case Finish::worker_died:
      return fail(ErrorCode::engine_error, "the model's process died while it worked on this",
                  "see `ponder doctor`; a shorter prompt or another model may do");
    case Finish::worker_killed:
      return fail(ErrorCode::stream_lost, "the model's process was ended from outside",
                  "send the request again");
    case Finish::cancelled:
      if (gone) return fail(client_left());
      return fail(ErrorCode::interrupted, "the turn was ended because the daemon is stopping",
                  "send the request again when it is back");
    case Finish::no_memory:
    case Finish::failed:
      break;
  }
  if (!ended.error)
    return fail(ErrorCode::engine_error, "the model failed without a reason",
                "send the request again; the daemon's log may say more");
  Error error = *ended.error;
  // To this door the engine has one code for its own faults; the message tells them apart.
  if (error.code == ErrorCode::out_of_memory || error.code == ErrorCode::internal)
    error.code = ErrorCode::engine_error;
  if (error.code == ErrorCode::device_lost) error.code = ErrorCode::stream_lost;
  return fail(std::move(error));
}

json::object usage_body(const Usage& usage) {
  const std::int64_t completion = usage.reasoning_tokens + usage.answer_tokens;
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", completion},
          {"total_tokens", usage.prompt_tokens + completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning_tokens}}}};
}

json::object tool_call_body(const ToolCall& call) {
  return {{"id", call.id.empty() ? "call_" + random_hex(12) : call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", to_json(call.arguments)}}}};
}

/// A token in OpenAI's shape: its text as far as it is one, and its bytes.
json::object token_body(std::string_view bytes, double logprob) {
  json::array numbers;
  for (const char c : bytes)
    numbers.push_back(static_cast<unsigned char>(c));
  return {{"token", replace_invalid(bytes)}, {"logprob", logprob}, {"bytes", std::move(numbers)}};
}

void add_logprobs(const Delta& delta, json::array& out) {
  for (const TokenLogprobs& one : delta.logprobs) {
    json::object token = token_body(one.bytes, one.logprob);
    json::array top;
    for (std::size_t i = 0; i < one.top.size() && i < one.top_bytes.size(); ++i)
      top.push_back(token_body(one.top_bytes[i], one.top[i].second));
    token["top_logprobs"] = std::move(top);
    out.push_back(std::move(token));
  }
}

/// One turn: the sink of its generation and the writer of its answer.
class ChatTurn : public OutputSink, public std::enable_shared_from_this<ChatTurn> {
 public:
  ChatTurn(const ApiServices& services, ExchangePtr exchange, bool stream, bool include_usage,
           bool logprobs)
      : services_(services),
        exchange_(std::move(exchange)),
        stream_(stream),
        include_usage_(include_usage),
        logprobs_(logprobs),
        id_("chatcmpl-" + random_hex(12)),
        created_(services.clock.wall_ms() / 1000),
        model_(services.generator.status().model.id) {}

  /// Plans, then queues. One that the queue would refuse is not worth the planning, nor its memory.
  void run(GenerationRequest request) {
    if (services_.queue.status().turns_full)
      return exchange_->respond(
          error_response({ErrorCode::queue_full, "so many requests wait already that it is full",
                          "try again in a few seconds"}));
    exchange_->on_gone([self = shared_from_this()] { self->client_gone(); });
    GenerationRequest copy = request;
    services_.generator.plan(
        std::move(copy),
        [self = shared_from_this(), request = std::move(request)](Result<PromptPlan> plan) mutable {
          if (!plan) return self->exchange_->respond(error_response(plan.error()));
          self->start(std::move(request));
        });
  }

  void on_started(const Started&) override {
    const std::lock_guard lock(mutex_);
    begin_stream();
  }
  void on_prefill(const PrefillProgress&) override {}
  void on_delta(const Delta& delta) override {
    const bool reasoning = delta.channel == Channel::reasoning;
    const bool has_logprobs = logprobs_ && !reasoning && !delta.logprobs.empty();
    if (delta.text.empty() && !has_logprobs) return;
    const std::lock_guard lock(mutex_);
    if (has_logprobs) add_logprobs(delta, answer_logprobs_);
    if (delta.text.empty() && stream_) return;  // they go with the text that they make
    if (!stream_) {
      (reasoning ? reasoning_ : answer_) += delta.text;
      return;
    }
    begin_stream();
    write_chunk({{reasoning ? "reasoning_content" : "content", delta.text}}, nullptr,
                reasoning ? json::array() : std::exchange(answer_logprobs_, {}));
  }
  void on_tool_call(const ToolCallMade& made) override {
    const std::lock_guard lock(mutex_);
    json::object call = tool_call_body(made.call);
    if (stream_) {
      begin_stream();
      call["index"] = tool_calls_.size();
      write_chunk({{"tool_calls", json::array{call}}}, nullptr);
    }
    tool_calls_.push_back(std::move(call));
  }
  void on_ended(const Ended& ended) override {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    const auto reason = finish_reason(ended, !tool_calls_.empty(), gone_);
    if (!reason && !stream_begun_) return exchange_->respond(error_response(reason.error()));
    if (!reason) {
      // No [DONE] and no finish_reason: nobody can take this for a whole answer.
      exchange_->write(sse_event("", "", to_json(error_body(reason.error()))));
      return exchange_->end_events();
    }
    if (stream_) return end_stream(*reason, ended.usage);
    respond_whole(*reason, ended.usage);
  }

 private:
  void start(GenerationRequest request) {
    {
      const std::lock_guard lock(mutex_);
      if (gone_) return exchange_->respond(error_response(client_left()));
    }
    // A client hears nothing while it waits in the queue; its headers should not be late for it.
    if (stream_)
      exchange_->after(std::chrono::milliseconds(services_.stream_start_ms),
                       [self = shared_from_this()] {
                         const std::lock_guard lock(self->mutex_);
                         if (!self->ended_) self->begin_stream();
                       });
    const jobs::CallId turn = services_.queue.start_turn(std::move(request), shared_from_this());
    {
      const std::lock_guard lock(mutex_);
      turn_ = turn;
      if (!gone_) return;
    }
    services_.queue.cancel_turn(turn);
  }

  void client_gone() {
    std::optional<jobs::CallId> turn;
    {
      const std::lock_guard lock(mutex_);
      gone_ = true;
      turn = turn_;
    }
    if (turn) services_.queue.cancel_turn(*turn);
  }

  json::object frame(std::string_view object) const {
    return {{"id", id_}, {"object", object}, {"created", created_}, {"model", model_}};
  }

  std::string chunk(json::object delta, const json::value& reason, json::array logprobs) const {
    json::object body = frame("chat.completion.chunk");
    json::object choice{{"index", 0}, {"delta", std::move(delta)}, {"finish_reason", reason}};
    if (logprobs_ && !logprobs.empty())
      choice["logprobs"] = json::object{{"content", std::move(logprobs)}};
    else if (logprobs_)
      choice["logprobs"] = nullptr;
    body["choices"] = json::array{std::move(choice)};
    if (include_usage_) body["usage"] = nullptr;
    return sse_event("", "", to_json(body));
  }
  void write_chunk(json::object delta, const json::value& reason, json::array logprobs = {}) {
    exchange_->write(chunk(std::move(delta), reason, std::move(logprobs)));
  }

  /// Needs the lock. Some clients count bytes against silence and some count events, so a beat is
  /// a comment and an empty delta.
  void begin_stream() {
    if (!stream_ || stream_begun_) return;
    stream_begun_ = true;
    exchange_->begin_events({std::chrono::milliseconds(services_.chat_heartbeat_ms),
                             ": ping\n\n" + chunk({}, nullptr, {})});
    write_chunk({{"role", "assistant"}, {"content", ""}}, nullptr);
  }

  void end_stream(const std::string& reason, const Usage& usage) {
    begin_stream();
    write_chunk({}, json::value(reason), std::exchange(answer_logprobs_, {}));
    if (include_usage_) {
      json::object body = frame("chat.completion.chunk");
      body["choices"] = json::array();
      body["usage"] = usage_body(usage);
      exchange_->write(sse_event("", "", to_json(body)));
    }
    exchange_->write(sse_event("", "", "[DONE]"));
    exchange_->end_events();
  }

  void respond_whole(const std::string& reason, const Usage& usage) {
    json::object message{{"role", "assistant"}};
    message["content"] =
        answer_.empty() && !tool_calls_.empty() ? json::value(nullptr) : json::value(answer_);
    if (!reasoning_.empty()) message["reasoning_content"] = reasoning_;
    if (!tool_calls_.empty()) message["tool_calls"] = tool_calls_;
    Response response;
    json::object body = frame("chat.completion");
    json::object choice{{"index", 0}, {"message", std::move(message)}, {"finish_reason", reason}};
    if (logprobs_) choice["logprobs"] = json::object{{"content", std::move(answer_logprobs_)}};
    body["choices"] = json::array{std::move(choice)};
    body["usage"] = usage_body(usage);
    response.body = std::move(body);
    exchange_->respond(std::move(response));
  }

  const ApiServices& services_;
  const ExchangePtr exchange_;
  const bool stream_;
  const bool include_usage_;
  const bool logprobs_;
  const std::string id_;
  const std::int64_t created_;
  const std::string model_;  ///< the real one, whatever the request named

  std::mutex mutex_;
  std::string reasoning_;
  std::string answer_;
  json::array answer_logprobs_;  ///< not written yet
  json::array tool_calls_;
  std::optional<jobs::CallId> turn_;
  bool stream_begun_ = false;
  bool ended_ = false;
  bool gone_ = false;
};
}  // namespace

void post_chat_completions(const ApiServices& services, ExchangePtr exchange, std::string body,
                           std::string) {
  auto object = parse_json_object(body, services.json_limits);
  if (!object) return exchange->respond(error_response(object.error()));
  std::string().swap(body);
  auto call = read_chat_call(*object);
  json::object().swap(*object);
  if (!call) return exchange->respond(error_response(call.error()));
  std::make_shared<ChatTurn>(services, std::move(exchange), call->stream, call->include_usage,
                             call->request.sampling.top_logprobs.has_value())
      ->run(std::move(call->request));
}

}  // namespace ponder::daemon
