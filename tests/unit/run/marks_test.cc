#include "engine/run/marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/text/prompt_encoding.h"

#include "tests/unit/generator/pebble.h"

namespace ponder::run {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

RenderedPrompt rendered(const GenerationRequest& request) {
  return render_prompt(test::pebble_vocabulary(), request).value();
}
std::vector<std::int64_t> marks_of(const RenderedPrompt& prompt) {
  return plan_marks(*test::pebble_vocabulary().tokenizer, prompt);
}
std::string text_before(const RenderedPrompt& prompt, std::int64_t mark) {
  return test::pebble_vocabulary().tokenizer->decode(
      std::span(prompt.ids).first(static_cast<std::size_t>(mark)));
}
std::string text_after(const RenderedPrompt& prompt, std::int64_t mark) {
  return test::pebble_vocabulary().tokenizer->decode(
      std::span(prompt.ids).subspan(static_cast<std::size_t>(mark)));
}

GenerationRequest talk(bool with_tools, const std::string& system) {
  GenerationRequest r;
  r.chat.effort = parse_effort(std::string_view("medium")).value();
  r.chat.messages.push_back({"system", system});
  if (with_tools)
    r.chat.tools = parse_json(R"([{"type": "function", "function": {"name": "look_up",
        "description": "Finds a row of a table by its key, or says that there is none.",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}}}}])")
                       .value()
                       .as_array();
  r.chat.messages.push_back({"user", "What is in the first of these rows, and in the second one?"});
  r.chat.messages.push_back({"assistant", "The first row holds apples, the second one pears."});
  r.chat.messages.push_back({"user", "And in the third row, which is a little further down?"});
  return r;
}

TEST(Marks, TheEndOfThePromptIsBeforeTheThinkOpener) {
  GenerationRequest r = talk(false, "You answer in one short sentence and nothing more.");
  const RenderedPrompt medium = rendered(r);
  r.chat.effort = parse_effort(std::string_view("none")).value();
  const RenderedPrompt none = rendered(r);
  const auto mark = marks_of(medium).back();
  EXPECT_TRUE(text_before(medium, mark).ends_with("<|im_start|>assistant\n"));
  EXPECT_EQ(text_after(medium, mark), "<think>\n");
  EXPECT_EQ(marks_of(none).back(), mark);  // the same place: the state is good for both
  EXPECT_TRUE(std::equal(none.ids.begin(), none.ids.begin() + mark, medium.ids.begin()));
}

TEST(Marks, TurnsAreMarkedWhereTheyBegin) {
  const RenderedPrompt prompt =
      rendered(talk(false, "You answer in one short sentence and nothing more, as a rule."));
  const auto marks = marks_of(prompt);
  ASSERT_EQ(marks.size(), 3u);  // end of system (the first user turn), last user turn, end
  EXPECT_TRUE(text_before(prompt, marks[0]).ends_with("as a rule.<|im_end|>\n"));
  EXPECT_TRUE(text_after(prompt, marks[0]).starts_with("<|im_start|>user\nWhat is in the first"));
  EXPECT_TRUE(text_after(prompt, marks[1]).starts_with("<|im_start|>user\nAnd in the third"));
}

TEST(Marks, TheSystemTextBehindToolsIsMarked) {
  const std::string first = "You answer in one short sentence and nothing more, as a rule.";
  const std::string second = "Something quite different stands here, in other words than before.";
  const RenderedPrompt prompt = rendered(talk(true, first)), other = rendered(talk(true, second));
  const auto marks = marks_of(prompt);
  ASSERT_EQ(marks.size(), 5u);  // the end of the tools is the first
  EXPECT_TRUE(std::equal(prompt.ids.begin(), prompt.ids.begin() + marks[1], other.ids.begin()));
  const std::string after = text_after(prompt, marks[1]);
  EXPECT_LE(after.find(first), 12u) << after;
}

json::array tools(int n) {
  json::array all;
  for (int i = 0; i < n; ++i)
    all.push_back(json::object{
        {"type", "function"},
        {"function",
         {{"name", "look_up_" + std::to_string(i)},
          {"description", "Finds a row of table " + std::to_string(i) + " by its key."},
          {"parameters", {{"type", "object"}, {"properties", {{"key", {{"type", "string"}}}}}}}}}});
  return all;
}

/// The system text before the tools, and instructions behind them.
RenderedPrompt tools_last(const GenerationRequest& request) {
  static const auto chat_template = text::ChatTemplate::compile(
      "<|im_start|>system\n{{ messages[0].content }}\n\n# Tools\n<tools>"
      "{% for t in tools %}{{ '\\n' }}{{ t | tojson }}{% endfor %}{{ '\\n</tools>\\n\\n' }}"
      "For each call return an object with the name of the function and its arguments.<|im_end|>\n"
      "<|im_start|>user\n{{ messages[1].content }}<|im_end|>\n<|im_start|>assistant\n");
  json::array messages;
  for (const Message& m : request.chat.messages)
    messages.push_back(json::object{{"role", m.role}, {"content", m.content}});
  const auto pieces =
      chat_template.value()->render({{"messages", messages}, {"tools", request.chat.tools}});
  text::EncodedPrompt encoded =
      text::encode_with_borders(*test::pebble_vocabulary().tokenizer, pieces.value());
  RenderedPrompt prompt;
  prompt.ids = std::move(encoded.ids);
  prompt.caller_text = std::move(encoded.caller_text);
  prompt.caller_ends = std::move(encoded.caller_ends);
  return prompt;
}

TEST(Marks, AToolAppendedOrTakenAwayLeavesAMarkWhereTheListsPart) {
  GenerationRequest with_text =
      talk(false, "You answer in one short sentence and nothing more, as a rule.");
  GenerationRequest without = with_text;
  without.chat.messages.erase(without.chat.messages.begin());
  RenderedPrompt (*const shown[])(const GenerationRequest&) = {rendered, tools_last};
  for (const auto render : shown) {
    for (GenerationRequest* request : {&with_text, &without}) {
      if (render == tools_last && request == &without) continue;
      for (const int n : {2, 5, 9}) {
        request->chat.tools = tools(n);
        const RenderedPrompt few = render(*request);
        request->chat.tools = tools(n + 1);
        const RenderedPrompt more = render(*request);
        const auto part = std::mismatch(few.ids.begin(), few.ids.end(), more.ids.begin());
        const std::int64_t common = part.first - few.ids.begin();
        ASSERT_GT(common, 60);
        const auto just_before = testing::AllOf(testing::Le(common), testing::Gt(common - 4));
        EXPECT_THAT(marks_of(few), Contains(just_before)) << n << " tools and one more";
        EXPECT_THAT(marks_of(more), Contains(just_before)) << n + 1 << " tools and one less";
      }
    }
  }
}

TEST(Marks, ATextThatLooksLikeATurnIsNone) {
  GenerationRequest r = talk(false, "Short.");
  const std::size_t before = marks_of(rendered(r)).size();
  r.chat.messages.back().content =
      "<|im_start|>user\n" + std::string(200, 'x') + "<|im_start|>user\nand on";
  EXPECT_EQ(marks_of(rendered(r)).size(), before);
}

TEST(Marks, ThereAreFewAndTheyLieApart) {
  GenerationRequest r = talk(true, "You answer in one short sentence and nothing more, as a rule.");
  for (int i = 0; i < 30; ++i) {
    r.chat.messages.push_back({"assistant", "Row " + std::to_string(i) + " holds what you think."});
    r.chat.messages.push_back(
        {"user", "And row " + std::to_string(i) + ", what does it hold now?"});
  }
  const RenderedPrompt prompt = rendered(r);
  const auto marks = marks_of(prompt);
  EXPECT_EQ(marks.size(), kMostMarks);
  for (std::size_t i = 1; i + 1 < marks.size(); ++i)
    EXPECT_GE(marks[i] - marks[i - 1], kMarkSpacing);
  // The last two always, however near; then the system turn; then the latest of the rest.
  EXPECT_TRUE(text_after(prompt, marks[5]).starts_with("<|im_start|>user\nAnd row 29"));
  EXPECT_TRUE(text_after(prompt, marks[4]).starts_with("<|im_start|>user\nAnd row 28"));
}

TEST(Marks, APromptWithoutTurnsHasItsEnd) {
  GenerationRequest r;
  r.raw_prompt = "Once upon a time there was a list of numbers";
  const RenderedPrompt prompt = rendered(r);
  EXPECT_THAT(marks_of(prompt), ElementsAre(static_cast<std::int64_t>(prompt.ids.size()) - 1));
  RenderedPrompt one;
  one.ids = {5};
  EXPECT_THAT(marks_of(one), ElementsAre());
}

TEST(Marks, APromptThatStopsInAThoughtHasItsEnd) {
  GenerationRequest r;
  r.raw_prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n<think>\n" +
                 std::string(100, 'a') + " b c d e f g h i j k l m n o p q r s t u v w";
  const RenderedPrompt prompt = rendered(r);
  EXPECT_THAT(marks_of(prompt), Contains(static_cast<std::int64_t>(prompt.ids.size()) - 1));
}

TEST(Marks, ALongPromptHasAGridToo) {
  const std::vector<std::int64_t> marks{100, 4100, 9000};
  EXPECT_EQ(next_mark(marks, 0, 20000), 100);
  EXPECT_EQ(next_mark(marks, 100, 20000), 4096);
  EXPECT_EQ(next_mark(marks, 4096, 20000), 4100);
  EXPECT_EQ(next_mark(marks, 4100, 20000), 8192);
  EXPECT_EQ(next_mark(marks, 12288, 13000), 13000);
  EXPECT_TRUE(is_mark(marks, 100));
  EXPECT_FALSE(is_mark(marks, 4096));  // a mark is near enough
  EXPECT_TRUE(is_mark(marks, 8192));
  EXPECT_FALSE(is_mark(marks, 5000));
  EXPECT_FALSE(is_mark(marks, 0));
}

}  // namespace
}  // namespace ponder::run
