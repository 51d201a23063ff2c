// POST /v1/chat/completions over real sockets; the turn is what the test writes to the sink.
#include <fmt/core.h>

#include <atomic>
#include <future>
#include <thread>

#include "daemon/api/chat_request.h"
#include "tests/unit/daemon/server_fixture.h"

namespace ponder::daemon {
namespace {

using Sink = std::shared_ptr<OutputSink>;

Ended ended(Finish finish) {
  Ended e{finish, {}, {}};
  e.usage.prompt_tokens = 10;
  e.usage.cached_tokens = 4;
  e.usage.reasoning_tokens = 3;
  e.usage.answer_tokens = 2;
  return e;
}
Delta text(Channel channel, std::string t) {
  return {channel, std::move(t), {}};
}

class Chat : public ServedApi {
 protected:
  RawResponse chat(const std::string& more) {
    return ask(post("/v1/chat/completions", body(more)));
  }
  static std::string body(const std::string& more) {
    return R"({"model": "gpt-9", "messages": [{"role": "user", "content": "hi"}])" +
           (more.empty() ? "" : ", " + more) + "}";
  }
  /// The data of each event; "[DONE]" comes as a string.
  static std::vector<json::value> events(const std::string& stream) {
    std::vector<json::value> out;
    for (std::size_t at = 0; (at = stream.find("data: ", at)) != stream.npos;) {
      const std::size_t end = stream.find("\n\n", at);
      const std::string data = stream.substr(at + 6, end - at - 6);
      out.push_back(data == "[DONE]" ? json::value(data) : *parse_json(data));
      at = end;
    }
    return out;
  }
  /// Sends a turn that goes nowhere until its sink, which is returned, is told something.
  Sink held_turn(RawClient& client, const std::string& more = {}) {
    const auto started = std::make_shared<std::promise<Sink>>();
    queue->on_turn = [started](const GenerationRequest&, Sink sink) {
      started->set_value(std::move(sink));
    };
    client.send(post("/v1/chat/completions", body(more)));
    return started->get_future().get();
  }
  static void a_thoughtful_answer(const GenerationRequest&, Sink sink) {
    sink->on_started({});
    sink->on_prefill({5, 10});
    sink->on_delta(text(Channel::reasoning, "hm"));
    sink->on_delta(text(Channel::answer, "he"));
    sink->on_delta(text(Channel::answer, "llo"));
    sink->on_ended(ended(Finish::end_token));
  }
};

TEST_F(Chat, AnswersAWholeTurn) {
  serve();
  queue->on_turn = a_thoughtful_answer;
  const RawResponse response = chat("");
  ASSERT_EQ(response.status, 200) << response.body;
  const json::value reply = response.parsed();
  EXPECT_EQ(reply.at("object"), "chat.completion");
  EXPECT_EQ(reply.at("model"), "pebble") << "the real one, not the one asked for";
  const json::value& choice = reply.at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "stop");
  EXPECT_EQ(choice.at("message"),
            *parse_json(R"({"role": "assistant", "content": "hello", "reasoning_content": "hm"})"));
  EXPECT_EQ(reply.at("usage"),
            *parse_json(R"({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15,
              "prompt_tokens_details": {"cached_tokens": 4},
              "completion_tokens_details": {"reasoning_tokens": 3}})"));
}

/// Half a character, then the other half; the first one's text comes with the second.
void a_turn_with_logprobs(const GenerationRequest&, Sink sink) {
  sink->on_started({});
  sink->on_delta({Channel::reasoning, "hm", {1}, {{1, -0.1, {}, "hm", {}}}});
  sink->on_delta({Channel::answer, "", {2}, {{2, -0.5, {{3, -0.25}}, "\xC3", {"x"}}}});
  sink->on_delta({Channel::answer, "\xC3\xA4", {4}, {{4, -1, {}, "\xA4", {}}}});
  sink->on_ended(ended(Finish::end_token));
}
constexpr const char* kLogprobs = R"([
  {"token": "\uFFFD", "logprob": -0.5, "bytes": [195],
   "top_logprobs": [{"token": "x", "logprob": -0.25, "bytes": [120]}]},
  {"token": "\uFFFD", "logprob": -1.0, "bytes": [164], "top_logprobs": []}])";

TEST_F(Chat, LogprobsAreThoseOfTheAnswersTokens) {
  serve();
  queue->on_turn = a_turn_with_logprobs;
  const json::value whole = chat(R"("logprobs": true, "top_logprobs": 1)").parsed();
  EXPECT_EQ(whole.at("choices").at(0).at("logprobs").at("content"), *parse_json(kLogprobs));
  EXPECT_FALSE(chat("").parsed().at("choices").at(0).as_object().contains("logprobs"));

  const auto all = events(chat(R"("stream": true, "logprobs": true, "top_logprobs": 1)").body);
  json::array told;
  for (const json::value& event : all) {
    if (!event.is_object()) continue;
    const json::value& logprobs = event.at("choices").at(0).at("logprobs");
    if (logprobs.is_null()) continue;
    EXPECT_EQ(event.at("choices").at(0).at("delta").at("content"), "\xC3\xA4");
    for (const json::value& token : logprobs.at("content").as_array())
      told.push_back(token);
  }
  EXPECT_EQ(json::value(told), *parse_json(kLogprobs));
}

TEST_F(Chat, StreamsATurn) {
  serve();
  queue->on_turn = a_thoughtful_answer;
  const RawResponse response = chat(R"("stream": true, "stream_options": {"include_usage": true})");
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type"), "text/event-stream; charset=utf-8");
  const auto chunks = events(response.body);
  ASSERT_EQ(chunks.size(), 7u) << response.body;
  const auto delta = [&](std::size_t i) { return chunks[i].at("choices").at(0).at("delta"); };
  EXPECT_EQ(delta(0), *parse_json(R"({"role": "assistant", "content": ""})"));
  EXPECT_EQ(delta(1), *parse_json(R"({"reasoning_content": "hm"})"));
  EXPECT_EQ(delta(2), *parse_json(R"({"content": "he"})"));
  EXPECT_EQ(delta(3), *parse_json(R"({"content": "llo"})"));
  EXPECT_EQ(chunks[4].at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(chunks[5].at("choices"), json::array());
  EXPECT_EQ(chunks[5].at("usage").at("total_tokens").as_int64(), 15);
  EXPECT_EQ(chunks[6], "[DONE]");
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(chunks[i].at("id"), chunks[0].at("id"));
    EXPECT_EQ(chunks[i].at("object"), "chat.completion.chunk");
    EXPECT_EQ(chunks[i].at("model"), "pebble");
  }
}

TEST_F(Chat, LeavesUsageOutOfAStreamUnlessAsked) {
  serve();
  queue->on_turn = a_thoughtful_answer;
  const RawResponse response = chat(R"("stream": true)");
  EXPECT_EQ(response.body.find("usage"), std::string::npos);
  EXPECT_EQ(events(response.body).back(), "[DONE]");
}

TEST_F(Chat, HandsOnToolCalls) {
  serve();
  queue->on_turn = [](const GenerationRequest&, Sink sink) {
    sink->on_started({});
    sink->on_tool_call({{"call_1", "add", {{"a", 1}}}});
    sink->on_tool_call({{"", "sub", {}}});
    sink->on_ended(ended(Finish::end_token));
  };
  const json::value choice = chat("").parsed().at("choices").at(0);
  EXPECT_EQ(choice.at("finish_reason"), "tool_calls");
  EXPECT_TRUE(choice.at("message").at("content").is_null());
  const json::value& calls = choice.at("message").at("tool_calls");
  EXPECT_EQ(calls.at(0), *parse_json(R"({"id": "call_1", "type": "function",
    "function": {"name": "add", "arguments": "{\"a\":1}"}})"));
  EXPECT_FALSE(calls.at(1).at("id").as_string().empty());
  EXPECT_EQ(calls.at(1).at("function").at("arguments"), "{}");

  const auto chunks = events(chat(R"("stream": true)").body);
  const json::value first = chunks[1].at("choices").at(0).at("delta").at("tool_calls").at(0);
  EXPECT_EQ(first.at("index").to_number<int>(), 0);
  EXPECT_EQ(first.at("function").at("arguments"), "{\"a\":1}");
  EXPECT_EQ(
      chunks[2].at("choices").at(0).at("delta").at("tool_calls").at(0).at("index").to_number<int>(),
      1);
  EXPECT_EQ(chunks[3].at("choices").at(0).at("finish_reason"), "tool_calls");
}

struct Ending {
  Finish finish;
  std::string reason;  ///< or empty
  int status;
  std::string code;
};
class ChatEnds : public Chat, public testing::WithParamInterface<Ending> {};

TEST_P(ChatEnds, AsDescribed) {
  serve();
  const Ending& want = GetParam();
  queue->on_turn = [&](const GenerationRequest&, Sink sink) {
    sink->on_started({});
    sink->on_delta(text(Channel::answer, "half"));
    sink->on_ended(ended(want.finish));
  };
  const RawResponse whole = chat("");
  EXPECT_EQ(whole.status, want.status);
  const RawResponse streamed = chat(R"("stream": true)");
  EXPECT_EQ(streamed.status, 200);
  const auto chunks = events(streamed.body);
  if (!want.reason.empty()) {
    EXPECT_EQ(whole.parsed().at("choices").at(0).at("finish_reason").as_string(), want.reason);
    EXPECT_EQ(chunks.back(), "[DONE]");
    EXPECT_EQ(chunks[chunks.size() - 2].at("choices").at(0).at("finish_reason").as_string(),
              want.reason);
  } else {
    EXPECT_EQ(whole.code(), want.code);
    EXPECT_EQ(chunks.back().at("error").at("code").as_string(), want.code);
    EXPECT_EQ(streamed.body.find("[DONE]"), std::string::npos);
    EXPECT_EQ(streamed.body.find("\"finish_reason\":\""), std::string::npos);
    EXPECT_TRUE(chunks.back().at("error").at("hint").is_string()) << "what mends it";
  }
}
INSTANTIATE_TEST_SUITE_P(Each, ChatEnds,
                         testing::Values(Ending{Finish::end_token, "stop", 200, ""},
                                         Ending{Finish::stop_string, "stop", 200, ""},
                                         Ending{Finish::output_limit, "length", 200, ""},
                                         Ending{Finish::reasoning_exhausted, "length", 200, ""},
                                         Ending{Finish::stream_lost, "", 502, "stream_lost"},
                                         Ending{Finish::stalled, "", 502, "stream_lost"},
                                         Ending{Finish::repetition, "", 500, "engine_error"},
                                         Ending{Finish::worker_died, "", 500, "engine_error"},
                                         Ending{Finish::worker_killed, "", 502, "stream_lost"},
                                         Ending{Finish::cancelled, "", 503, "interrupted"},
                                         Ending{Finish::failed, "", 500, "engine_error"}));

TEST_F(Chat, RefusesBeforeAStreamBegins) {
  serve();
  generator.planner = [](const GenerationRequest&) -> Result<PromptPlan> {
    Error error{ErrorCode::context_length_exceeded, "too long"};
    error.details = {{"n_prompt_tokens", 9000}, {"n_reserved", 1}, {"n_ctx", 8192}};
    return fail(error);
  };
  for (const char* more : {"", R"("stream": true)"}) {
    const RawResponse response = chat(more);
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(response.code(), "context_length_exceeded");
    EXPECT_EQ(response.parsed().at("error").at("n_ctx").as_int64(), 8192);
  }
  generator.planner = [](const GenerationRequest&) -> Result<PromptPlan> { return PromptPlan{}; };
  queue->on_turn = [](const GenerationRequest&, Sink sink) {
    sink->on_ended({Finish::failed, {}, Error{ErrorCode::queue_full, "full"}});
  };
  const RawResponse full = chat(R"("stream": true)");
  EXPECT_EQ(full.status, 429);
  EXPECT_TRUE(full.headers.count("retry-after"));
}

TEST_F(Chat, ATurnThatTheQueueWouldRefuseIsNotPlanned) {
  serve();
  std::atomic<int> plans{0};
  generator.planner = [&](const GenerationRequest&) -> Result<PromptPlan> {
    ++plans;
    return PromptPlan{};
  };
  queue->queue_status.turns_full = true;
  EXPECT_EQ(chat("").status, 429);
  EXPECT_EQ(plans, 0);
}

TEST_F(Chat, SendsHeadersAndBeatsWhileATurnWaits) {
  stream_start_ms = 20;
  heartbeat_ms = 20;
  serve();
  const auto waiting = std::make_shared<std::promise<Sink>>();
  queue->on_turn = [waiting](const GenerationRequest&, Sink sink) {
    waiting->set_value(std::move(sink));
  };
  RawClient client = on_unix();
  client.send(post("/v1/chat/completions", body(R"("stream": true)")));
  EXPECT_TRUE(client.read_until(": ping\n\ndata: {"));
  a_thoughtful_answer({}, waiting->get_future().get());
  EXPECT_TRUE(client.read_until("[DONE]"));
}

TEST_F(Chat, EndsATurnWithItsConnection) {
  serve();
  RawClient client = on_unix();
  const Sink sink = held_turn(client, R"("stream": true)");
  sink->on_started({});
  ASSERT_TRUE(client.read_until("assistant"));
  client.close();
  EXPECT_TRUE(queue->wait_until_turn_cancelled());
  sink->on_ended(ended(Finish::cancelled));
}

TEST_F(Chat, EndsAWholeTurnWithItsConnection) {
  serve();
  RawClient client = on_unix();
  const Sink sink = held_turn(client);
  client.close();
  EXPECT_TRUE(queue->wait_until_turn_cancelled());
  sink->on_ended(ended(Finish::cancelled));
}

TEST_F(Chat, TellsAClientThatClosedItsSendingSideWhyTheTurnEnded) {
  serve();
  RawClient client = on_unix();
  const Sink sink = held_turn(client);
  ::shutdown(client.fd(), SHUT_WR);
  ASSERT_TRUE(queue->wait_until_turn_cancelled());
  sink->on_ended(ended(Finish::cancelled));
  const RawResponse response = client.response();
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.code(), "cancelled");
  EXPECT_NE(response.body.find("sending side"), std::string::npos) << response.body;
}

TEST_F(Chat, TellsAClientThatClosedItsSendingSideBeforeItsTurnBegan) {
  serve();
  const auto planned = std::make_shared<std::promise<void>>();
  const auto plan = planned->get_future().share();
  generator.planner = [plan](const GenerationRequest&) -> Result<PromptPlan> {
    plan.wait();
    return PromptPlan{};
  };
  RawClient client = on_unix();
  client.send(post("/v1/chat/completions", body("")));
  ::shutdown(client.fd(), SHUT_WR);
  EXPECT_TRUE(client.wait_until_taken());
  // The loop has come to the end of that client's stream once it has answered one that came later.
  while (ask(get("/health")).status != 200) {
  }
  planned->set_value();
  const RawResponse response = client.response();
  EXPECT_EQ(response.code(), "cancelled") << response.body;
}

TEST_F(Chat, DropsAReaderThatDoesNotRead) {
  ServerLimits limits;
  limits.max_output_bytes = 64 * 1024;
  serve(limits);
  queue->on_turn = [](const GenerationRequest&, Sink sink) {
    sink->on_started({});
    for (int i = 0; i < 1000; ++i)
      sink->on_delta(text(Channel::answer, std::string(4096, 'x')));
    sink->on_ended(ended(Finish::end_token));
  };
  RawClient client = on_unix();
  client.send(post("/v1/chat/completions", body(R"("stream": true)")));
  EXPECT_TRUE(queue->wait_until_turn_cancelled());
  EXPECT_EQ(client.read_to_end().find("[DONE]"), std::string::npos);
}

Result<ChatCall> read(const std::string& more) {
  return read_chat_call(*parse_json_object(R"({"messages": [{"role": "user", "content": "hi"}])" +
                                           (more.empty() ? "" : ", " + more) + "}"));
}

TEST(ChatRequest, ReadsWhatItKnowsAndIgnoresTheRest) {
  const auto call = read(R"("stream": true, "n": 1, "logprobs": false, "temperature": 0.5,
    "max_completion_tokens": 9, "stop": ["a"], "response_format": {"type": "text"}, "user": "me",
    "store": false, "metadata": {"a": [1]}, "parallel_tool_calls": true)");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_TRUE(call->stream);
  EXPECT_EQ(call->request.sampling.temperature, 0.5);
  EXPECT_EQ(call->request.budgets.max_tokens, 9);
  EXPECT_EQ(call->request.chat.effort, Effort{});
  EXPECT_EQ(read(R"("reasoning_effort": "none")")->request.chat.effort->word, Effort::Word::none);
}

TEST(ChatRequest, RefusesWhatItCannotHonourByName) {
  for (const auto& [more, param] : std::vector<std::pair<std::string, std::string>>{
           {R"("n": 2)", "n"},
           {R"("n": 0)", "n"},
           {R"("top_logprobs": 3)", "top_logprobs"},
           {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
           {R"("logprobs": "yes")", "logprobs"},
           {R"("logit_bias": [1])", "logit_bias"},
           {R"("logit_bias": {"a": 1})", "logit_bias"},
           {R"("logit_bias": {"-1": 1})", "logit_bias"},
           {R"("logit_bias": {"1": 101})", "logit_bias"},
           {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format"},
           {R"("response_format": {"type": "grammar"})", "response_format"},
           {R"("response_format": "text")", "response_format"},
           {R"("modalities": ["text", "audio"])", "modalities"},
           {R"("stream": "yes")", "stream"},
           {R"("stream_options": 1)", "stream_options"},
           {R"("tool_choice": "required")", "tool_choice"},
           {R"("tool_choice": "maybe")", "tool_choice"},
           {R"("tool_choice": 1)", "tool_choice"},
           {R"("tool_choice": {"type": "function", "function": {"name": "x"}})", "tool_choice"},
           {R"("temperature": -1)", "temperature"},
           {R"("max_tokens": 0)", "max_tokens"}}) {
    const auto call = read(more);
    ASSERT_FALSE(call) << more;
    EXPECT_EQ(call.error().code, ErrorCode::bad_request);
    EXPECT_EQ(call.error().param, param) << call.error().message;
  }
}

TEST(ChatRequest, ReadsLogprobsBiasesAndSchemas) {
  const auto call =
      read(R"("logprobs": true, "top_logprobs": 2, "logit_bias": {"17": -100, "5": 1.5},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true,
      "schema": {"type": "array"}}})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->request.sampling.top_logprobs, 2);
  const std::vector<std::pair<std::int32_t, float>> biases{{17, -100.0f}, {5, 1.5f}};
  EXPECT_EQ(call->request.sampling.logit_bias, biases);
  EXPECT_EQ(to_json(call->request.schema), R"({"type":"array"})");
  EXPECT_EQ(to_json(read(R"("response_format": {"type": "json_object"})")->request.schema),
            R"({"type":"object"})");
  EXPECT_FALSE(read(R"("response_format": {"type": "json_schema", "json_schema": {"schema": {}}})")
                   ->request.schema.empty());
  EXPECT_EQ(read(R"("logprobs": true)")->request.sampling.top_logprobs, 0);
  EXPECT_FALSE(read("")->request.sampling.top_logprobs);
}

TEST(ChatRequest, ToolChoiceNarrowsTheTools) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "a"}},
    {"type": "function", "function": {"name": "b"}}])";
  EXPECT_EQ(read(tools)->request.chat.tools.size(), 2u);
  EXPECT_EQ(read(tools + R"(, "tool_choice": "auto")")->request.chat.tools.size(), 2u);
  EXPECT_EQ(read(tools + R"(, "tool_choice": "required")")->request.chat.tools.size(), 2u);
  EXPECT_EQ(read(tools + R"(, "tool_choice": "none")")->request.chat.tools.size(), 0u);
  const auto one =
      read(tools + R"(, "tool_choice": {"type": "function", "function": {"name": "b"}})");
  ASSERT_EQ(one->request.chat.tools.size(), 1u);
  EXPECT_EQ(one->request.chat.tools[0].at("function").at("name"), "b");
}

}  // namespace
}  // namespace ponder::daemon
