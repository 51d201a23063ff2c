// The output of a model that says what the test wants: logits that leave one token to choose.
#include "engine/run/output_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using test::Heard;
using test::RecordingSink;

class Output : public testing::Test {
 protected:
  const text::Tokenizer& tokenizer = *test::pebble_vocabulary().tokenizer;
  GenerationRequest request;
  PromptPlan plan{10, 100000, 50000, 50000, 100000, "medium", "template"};
  bool starts_thinking = true;
  std::shared_ptr<RecordingSink> sink = std::make_shared<RecordingSink>();

  /// Feeds the tokens of `script` until the output ends; the rest of it is never asked for.
  Heard say(const std::string& script) { return say(tokenizer.encode(script, true)); }

  Heard say(const std::vector<text::TokenId>& ids) {
    OutputStream out(tokenizer, request, plan, starts_thinking, sink,
                     std::chrono::steady_clock::now());
    // Two rows more than the tokenizer knows, and those are the largest of all.
    std::vector<float> logits(static_cast<std::size_t>(tokenizer.size()) + 2);
    for (const text::TokenId id : ids) {
      if (out.ended()) break;
      std::fill(logits.begin(), logits.end(), -50.0f);
      logits[static_cast<std::size_t>(id)] = 50.0f;
      logits[static_cast<std::size_t>(tokenizer.size())] = 1000.0f;
      EXPECT_EQ(out.next(logits), id);
    }
    if (!out.ended()) out.end(Finish::cancelled);
    return sink->heard();
  }
};

TEST_F(Output, AWholeAnswerEndsWithItsEndToken) {
  const std::string text = "five and two\nmake seven\n</think>\n\nSeven.<|im_end|>";
  const Heard h = say(text);
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(h.text(Channel::answer), "Seven.");
  EXPECT_THAT(h.text(Channel::reasoning), testing::StartsWith("five and two\nmake seven"));
  auto all = tokenizer.encode(text, true);
  all.pop_back();  // the end token is no output
  EXPECT_EQ(h.tokens(), all);
  EXPECT_EQ(h.ended[0].usage.reasoning_tokens + h.ended[0].usage.answer_tokens,
            static_cast<std::int64_t>(all.size()));
}

TEST_F(Output, TokensAreCountedInTheChannelTheyWereReadIn) {
  const Heard h = say("a b c\n</think>\n\nd e<|im_end|>");
  std::int64_t reasoning = 0, answer = 0;
  for (const Delta& d : h.deltas)
    (d.channel == Channel::reasoning ? reasoning : answer) +=
        static_cast<std::int64_t>(d.tokens.size());
  EXPECT_EQ(reasoning, h.ended.at(0).usage.reasoning_tokens);
  EXPECT_EQ(answer, h.ended[0].usage.answer_tokens);
}

TEST_F(Output, AnEndInsideThinkingIsNoWholeAnswer) {
  const Heard h = say("I wonder<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::stream_lost);
  EXPECT_EQ(h.text(Channel::reasoning), "I wonder");
}

TEST_F(Output, AnEndInsideACallIsNoWholeAnswer) {
  request.chat.tools =
      parse_json(R"([{"type": "function", "function": {"name": "f"}}])")->as_array();
  const Heard h = say("x\n</think>\n\n<tool_call>\n<function=f>\n<parameter=a>\n1<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::stream_lost);
  EXPECT_TRUE(h.calls.empty());
}

TEST_F(Output, AToolCallComesWholeWithTypedArgumentsAndAnId) {
  request.chat.tools = parse_json(R"([{"type": "function", "function": {"name": "f", "parameters":
    {"type": "object", "properties": {"n": {"type": "integer"}, "s": {"type": "string"}}}}}])")
                           ->as_array();
  const Heard h =
      say("x\n</think>\n\n<tool_call>\n<function=f>\n<parameter=n>\n12\n</parameter>\n"
          "<parameter=s>\n12\n</parameter>\n</function>\n</tool_call><|im_end|>");
  ASSERT_EQ(h.calls.size(), 1u);
  EXPECT_EQ(h.calls[0].name, "f");
  EXPECT_NE(h.calls[0].id, "");
  EXPECT_EQ(to_json(h.calls[0].arguments), R"({"n":12,"s":"12"})");
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
}

TEST_F(Output, ThinkingThatSpendsItsBudgetIsExhausted) {
  plan.reasoning_budget = 5;
  const Heard h = say("one two three four five six seven eight nine ten");
  EXPECT_EQ(h.ended.at(0).finish, Finish::reasoning_exhausted);
  EXPECT_EQ(h.ended[0].usage.reasoning_tokens, 5);
  EXPECT_EQ(h.tokens().size(), 5u);
}

TEST_F(Output, ThinkingMayCloseWithItsLastToken) {
  const std::string thought = "a b\n</think>";
  plan.reasoning_budget = static_cast<std::int64_t>(tokenizer.encode(thought, true).size());
  EXPECT_EQ(say(thought + "\n\nc<|im_end|>").ended.at(0).finish, Finish::end_token);
}

TEST_F(Output, TheAnswerAndTheTotalHaveLimits) {
  request.budgets.max_answer_tokens = 4;
  Heard h = say("a\n</think>\n\none two three four five six seven eight");
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.ended[0].usage.answer_tokens, 4);

  request.budgets.max_answer_tokens.reset();
  plan.total_budget = 6;
  sink = std::make_shared<RecordingSink>();
  h = say("a\n</think>\n\none two three four five six seven eight");
  EXPECT_EQ(h.ended.at(0).finish, Finish::output_limit);
  EXPECT_EQ(h.tokens().size(), 6u);
}

TEST_F(Output, StopStringsWorkAcrossTokensAndOnlyInTheAnswer) {
  request.sampling.stop = {"e two t"};
  const Heard h = say("one two three\n</think>\n\none two three<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::stop_string);
  EXPECT_EQ(h.text(Channel::answer), "on");
  EXPECT_THAT(h.text(Channel::reasoning), testing::StartsWith("one two three"));
}

TEST_F(Output, TextHeldBackForAStopStringComesOutAtTheEnd) {
  request.sampling.stop = {"three!"};
  EXPECT_EQ(say("x\n</think>\n\none two three<|im_end|>").text(Channel::answer), "one two three");
}

TEST_F(Output, ACycleIsRepetitionUnlessTheEndIsIgnored) {
  std::string loop = "x\n</think>\n\n";
  for (int i = 0; i < 3000; ++i)
    loop += "again and ";
  EXPECT_EQ(say(loop).ended.at(0).finish, Finish::repetition);
  sink = std::make_shared<RecordingSink>();
  request.ignore_eos = true;
  EXPECT_EQ(say(loop).ended.at(0).finish, Finish::cancelled);  // the script ran out first
}

TEST_F(Output, WithIgnoreEosAnEndTokenIsATokenLikeAnyOther) {
  request.ignore_eos = true;
  const Heard h = say("x\n</think>\n\na<|im_end|>b<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::cancelled);
  EXPECT_EQ(h.tokens().size(),
            tokenizer.encode("x\n</think>\n\na<|im_end|>b<|im_end|>", true).size());
}

TEST_F(Output, WithoutThinkingTheAnswerBeginsAtOnce) {
  starts_thinking = false;
  plan.reasoning_budget = 0;
  const Heard h = say("Seven.<|im_end|>");
  EXPECT_EQ(h.ended.at(0).finish, Finish::end_token);
  EXPECT_EQ(h.text(Channel::answer), "Seven.");
}

TEST(SamplerConfig, FamilyDefaultsToolsAndOverrides) {
  sample::SamplerConfig c = sampler_config({}, false);
  EXPECT_FLOAT_EQ(c.temperature, 0.6f);
  EXPECT_FLOAT_EQ(c.top_p, 0.95f);
  EXPECT_EQ(c.top_k, 20);
  EXPECT_FLOAT_EQ(c.min_p, 0.0f);
  EXPECT_FLOAT_EQ(sampler_config({}, true).min_p, 0.05f);
  EXPECT_NE(c.seed, sampler_config({}, false).seed);
  SamplingParams p;
  p.temperature = 0;
  p.min_p = 0.2;
  p.top_k = 3;
  p.seed = 9;
  c = sampler_config(p, true);
  EXPECT_EQ(c.temperature, 0.0f);
  EXPECT_FLOAT_EQ(c.min_p, 0.2f);
  EXPECT_EQ(c.top_k, 3);
  EXPECT_EQ(c.seed, 9u);
}

}  // namespace
}  // namespace ponder::run
