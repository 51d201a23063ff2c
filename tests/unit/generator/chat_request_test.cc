#include "engine/generator/chat_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ponder {
namespace {

using testing::HasSubstr;

json::object body(std::string_view text) {
  return parse_json_object(text).value();
}

Error refused(std::string_view text) {
  Result<ChatRequest> request = parse_chat_request(body(text));
  return request ? Error{ErrorCode::internal, "accepted"} : request.error();
}

TEST(Effort, WordsAliasesAndNumbers) {
  EXPECT_EQ(to_string(parse_effort("none").value()), "none");
  EXPECT_EQ(to_string(parse_effort("low").value()), "low");
  EXPECT_EQ(to_string(parse_effort("medium").value()), "medium");
  EXPECT_EQ(to_string(parse_effort("xhigh").value()), "xhigh");
  EXPECT_EQ(to_string(parse_effort("high").value()), "medium");
  EXPECT_EQ(to_string(parse_effort("max").value()), "xhigh");
  EXPECT_EQ(to_string(parse_effort("minimal").value()), "low");
  EXPECT_EQ(to_string(parse_effort("0").value()), "0");
  EXPECT_EQ(to_string(parse_effort(json::value(1048576)).value()), "1048576");
  EXPECT_EQ(to_string(parse_effort(json::value(2048.0)).value()), "2048");
}

TEST(Effort, AnythingElseIsRefusedAndListsTheWords) {
  for (const json::value& bad :
       {json::value("extreme"), json::value(""), json::value(-1), json::value(1048577),
        json::value(1.5), json::value(true), json::value("12x"), json::value(" low")}) {
    const Result<Effort> effort = parse_effort(bad);
    ASSERT_FALSE(effort) << to_json(bad);
    EXPECT_EQ(effort.error().code, ErrorCode::bad_request);
    EXPECT_THAT(effort.error().message, HasSubstr("none, low, medium, xhigh"));
  }
}

TEST(ChatRequest, ContentIsAStringNullOrTextParts) {
  const ChatRequest r = parse_chat_request(body(R"({"messages": [
    {"role": "system", "content": "be brief"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    {"role": "assistant", "content": null, "reasoning_content": "hm"},
    {"role": "tool", "content": "42", "tool_call_id": "c1"}]})"))
                            .value();
  EXPECT_EQ(r.messages[1].content, "ab");
  EXPECT_EQ(r.messages[2].content, "");
  EXPECT_EQ(r.messages[2].reasoning_content, "hm");
  EXPECT_EQ(r.messages[3].tool_call_id, "c1");
  EXPECT_FALSE(r.effort);
}

TEST(ChatRequest, APartThatIsNotTextIsRefusedByName) {
  const Error e = refused(R"({"messages": [{"role": "user", "content": "x"},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {}}]}]})");
  EXPECT_EQ(e.code, ErrorCode::bad_request);
  EXPECT_EQ(e.param, "messages[1].content[1]");
  EXPECT_THAT(e.message, HasSubstr("image_url"));
}

TEST(ChatRequest, RefusesWhatIsMalformed) {
  for (
      const char* text : {
          R"({})",
          R"({"messages": []})",
          R"({"messages": "hi"})",
          R"({"messages": [1]})",
          R"({"messages": [{"role": "robot", "content": "x"}]})",
          R"({"messages": [{"content": "x"}]})",
          R"({"messages": [{"role": "user", "content": 7}]})",
          R"({"messages": [{"role": "user", "content": ["x"]}]})",
          R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})",
          R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]})",
          R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "[1]"}}]}]})",
          R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 3}}]}]})",
          R"({"messages": [{"role": "user", "content": "x"}], "tools": {}})",
          R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function"}]})",
          R"({"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "huge"})",
          R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": 1})",
          R"({"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {"enable_thinking": 1}})",
      }) {
    EXPECT_EQ(refused(text).code, ErrorCode::bad_request) << text;
  }
}

TEST(ChatRequest, ToolCallArgumentsAreAStringOrAnObject) {
  for (const char* arguments : {R"("{\"city\": \"Bonn\"}")", R"({"city": "Bonn"})"}) {
    const ChatRequest r = parse_chat_request(body(std::string(R"({"messages": [{"role": "assistant",
      "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "weather", "arguments": )") +
                                                  arguments + "}}]}]}"))
                              .value();
    const ToolCall& call = r.messages[0].tool_calls.at(0);
    EXPECT_EQ(call.name, "weather");
    EXPECT_EQ(call.id, "c1");
    EXPECT_EQ(call.arguments.at("city").as_string(), "Bonn");
  }
}

TEST(ChatRequest, EffortComesFromTheFieldThenTheTemplateArguments) {
  const auto effort = [](std::string_view fields) {
    const ChatRequest r =
        parse_chat_request(body(R"({"messages": [{"role": "user", "content": "x"}], )" +
                                std::string(fields) + "}"))
            .value();
    return r.effort ? to_string(*r.effort) : "unset";
  };
  EXPECT_EQ(effort(R"("reasoning_effort": null)"), "unset");
  EXPECT_EQ(effort(R"("chat_template_kwargs": {"enable_thinking": false})"), "none");
  EXPECT_EQ(effort(R"("chat_template_kwargs": {"enable_thinking": true})"), "unset");
  EXPECT_EQ(effort(R"("chat_template_kwargs": {"reasoning_effort": "low"})"), "low");
  EXPECT_EQ(
      effort(R"("reasoning_effort": "xhigh", "chat_template_kwargs": {"enable_thinking": false})"),
      "xhigh");
  EXPECT_EQ(effort(R"("reasoning_effort": 500)"), "500");
}

TEST(ChatRequest, OtherTemplateArgumentsArePassedOnButNotTheReservedOnes) {
  const ChatRequest r = parse_chat_request(body(R"({"messages": [{"role": "user", "content": "x"}],
    "chat_template_kwargs": {"preserve_thinking": true, "messages": [], "add_generation_prompt": false,
                             "enable_thinking": true}, "unknown": 1})"))
                            .value();
  EXPECT_EQ(to_json(r.template_arguments), R"({"preserve_thinking":true})");
}

TEST(ChatRequest, BoundsTheNumberOfMessagesAndTools) {
  json::array messages, tools;
  for (int i = 0; i < 4097; ++i)
    messages.push_back({{"role", "user"}, {"content", "x"}});
  EXPECT_FALSE(parse_chat_request({{"messages", messages}}));
  messages.pop_back();
  EXPECT_TRUE(parse_chat_request({{"messages", messages}}));
  for (int i = 0; i < 513; ++i)
    tools.push_back(json::object{{"function", json::object{{"name", "f"}}}});
  EXPECT_FALSE(parse_chat_request({{"messages", messages}, {"tools", tools}}));
}

TEST(ChatRequest, BoundsTheNamesOfToolsAndTheNumberOfTemplateArguments) {
  const json::array messages{json::object{{"role", "user"}, {"content", "x"}}};
  const auto with_tool = [&](std::size_t letters) {
    const json::object function{{"name", std::string(letters, 'f')}};
    return parse_chat_request(
        {{"messages", messages}, {"tools", json::array{json::object{{"function", function}}}}});
  };
  EXPECT_TRUE(with_tool(256));
  EXPECT_FALSE(with_tool(257));
  json::object arguments;
  for (int i = 0; i < 64; ++i)
    arguments["a" + std::to_string(i)] = i;
  EXPECT_TRUE(parse_chat_request({{"messages", messages}, {"chat_template_kwargs", arguments}}));
  arguments["one_more"] = 1;
  EXPECT_FALSE(parse_chat_request({{"messages", messages}, {"chat_template_kwargs", arguments}}));
}

TEST(Sampling, ReadsEachFieldAndRefusesWhatIsOutOfRange) {
  const SamplingParams p =
      parse_sampling(
          body(R"({"temperature": 0, "top_p": 0.5, "top_k": -1, "min_p": 0.1, "presence_penalty": 1,
      "frequency_penalty": -1, "repetition_penalty": 1.1, "seed": 18446744073709551615, "stop": ["a", "", "b"]})"))
          .value();
  EXPECT_EQ(p.temperature, 0.0);
  EXPECT_EQ(p.top_k, 0);
  EXPECT_EQ(p.seed, 18446744073709551615u);
  EXPECT_THAT(p.stop, testing::ElementsAre("a", "b"));
  EXPECT_THAT(parse_sampling(body(R"({"stop": "x"})")).value().stop, testing::ElementsAre("x"));
  EXPECT_FALSE(parse_sampling(body(R"({"seed": -1})")).value().seed);
  for (const char* bad : {R"({"temperature": -1})", R"({"top_p": 2})", R"({"top_k": 1.5})",
                          R"({"min_p": "x"})", R"({"stop": 3})", R"({"stop": [3]})",
                          R"({"seed": -2})", R"({"seed": 1.5})", R"({"repetition_penalty": 0})"})
    EXPECT_FALSE(parse_sampling(body(bad))) << bad;
}

TEST(Budgets, TheNewerNameOfMaxTokensWins) {
  const Budgets b = parse_budgets(body(R"({"max_tokens": 5, "max_completion_tokens": 7,
    "max_reasoning_tokens": 0, "max_answer_tokens": 3})"))
                        .value();
  EXPECT_EQ(b.max_tokens, 7);
  EXPECT_EQ(b.max_reasoning_tokens, 0);
  EXPECT_EQ(b.max_answer_tokens, 3);
  for (const char* bad : {R"({"max_tokens": 0})", R"({"max_answer_tokens": 0})",
                          R"({"max_reasoning_tokens": -1})", R"({"max_tokens": "5"})"})
    EXPECT_FALSE(parse_budgets(body(bad))) << bad;
}

TEST(Codec, DecodeUndoesEncode) {
  ChatRequest r = parse_chat_request(body(R"({"messages": [
    {"role": "developer", "content": "d\u0000\u00fc"},
    {"role": "assistant", "content": "", "reasoning_content": "",
     "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": {"a": [1, 2.5, null]}}}]},
    {"role": "tool", "content": "t", "tool_call_id": "1"}],
    "tools": [{"type": "function", "function": {"name": "f"}}], "reasoning_effort": 77,
    "chat_template_kwargs": {"k": {"v": 1}}})"))
                      .value();
  const json::object once = encode(r);
  EXPECT_EQ(encode(decode_chat_request(once).value()), once);
  const ChatRequest back = decode_chat_request(parse_json_object(to_json(once)).value()).value();
  EXPECT_EQ(back.messages[0].content, r.messages[0].content);
  EXPECT_EQ(back.messages[1].reasoning_content, "");
  EXPECT_EQ(back.messages[1].tool_calls[0].arguments, r.messages[1].tool_calls[0].arguments);
  EXPECT_EQ(back.tools, r.tools);
  EXPECT_EQ(back.effort, r.effort);
  EXPECT_EQ(back.template_arguments, r.template_arguments);

  SamplingParams s;
  s.temperature = 0.7;
  s.top_k = 5;
  s.seed = UINT64_MAX;
  s.stop = {"x"};
  const SamplingParams s2 = decode_sampling(parse_json_object(to_json(encode(s))).value()).value();
  EXPECT_EQ(s2.temperature, s.temperature);
  EXPECT_EQ(s2.top_k, s.top_k);
  EXPECT_EQ(s2.seed, s.seed);
  EXPECT_EQ(s2.stop, s.stop);
  EXPECT_FALSE(s2.top_p);

  Budgets b;
  b.max_reasoning_tokens = 0;
  b.max_tokens = 9;
  b.defaulted = true;
  const Budgets b2 = decode_budgets(encode(b)).value();
  EXPECT_EQ(b2.max_reasoning_tokens, 0);
  EXPECT_FALSE(b2.max_answer_tokens);
  EXPECT_EQ(b2.max_tokens, 9);
  EXPECT_TRUE(b2.defaulted);
}

}  // namespace
}  // namespace ponder
