#include "engine/text/output_splitter.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <ctime>

#include "engine/text/byte_alphabet.h"
#include "engine/text/tool_arguments.h"
#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

/// The 256 bytes, then these texts as user-defined tokens of their own.
std::unique_ptr<Tokenizer> tokenizer_with(const std::vector<std::string>& texts) {
  TokenizerSpec spec{"gpt2", "qwen35", {}, {}, {}};
  for (int b = 0; b < 256; ++b) {
    spec.tokens.push_back(spell_bytes(std::string(1, static_cast<char>(b))));
    spec.types.push_back(1);
  }
  for (const std::string& text : texts) {
    spec.tokens.push_back(text);
    spec.types.push_back(4);
  }
  return Tokenizer::create(spec).value();
}
const Tokenizer& byte_tokenizer() {
  static const std::unique_ptr<Tokenizer> tokenizer = tokenizer_with({});
  return *tokenizer;
}

struct Outcome {
  std::string reasoning, answer;
  std::vector<ToolCall> calls;
  std::string order;  // r, a, c: the kinds of events as they came
  bool closed = false, unfinished = false;
  std::int64_t reasoning_tokens = 0, answer_tokens = 0;
};

Outcome collect(OutputSplitter& splitter, const std::vector<SplitEvent>& events) {
  Outcome o;
  for (const SplitEvent& event : events) {
    char kind = 'c';
    if (const auto* text = std::get_if<SplitText>(&event)) {
      EXPECT_FALSE(text->text.empty());
      kind = text->channel == Channel::reasoning ? 'r' : 'a';
      (kind == 'r' ? o.reasoning : o.answer) += text->text;
    } else {
      o.calls.push_back(std::get<ToolCall>(event));
    }
    if (kind == 'c' || o.order.empty() || o.order.back() != kind) o.order += kind;
  }
  o.closed = splitter.thinking_closed();
  o.unfinished = splitter.call_unfinished();
  o.reasoning_tokens = splitter.reasoning_tokens();
  o.answer_tokens = splitter.answer_tokens();
  return o;
}
Outcome run(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, SplitterOptions options) {
  OutputSplitter splitter(tokenizer, std::move(options));
  std::vector<SplitEvent> events;
  for (const TokenId id : ids)
    splitter.push(id, events);
  splitter.finish(events);
  return collect(splitter, events);
}
/// Byte by byte.
Outcome split(const std::string& text, SplitterOptions options = {}) {
  return run(byte_tokenizer(), byte_tokenizer().encode(text, false), std::move(options));
}

std::string call_text(std::string_view name,
                      const std::vector<std::pair<std::string, std::string>>& arguments) {
  std::string text = "<tool_call>\n<function=" + std::string(name) + ">\n";
  for (const auto& [key, value] : arguments)
    text += "<parameter=" + key + ">\n" + value + "\n</parameter>\n";
  return text + "</function>\n</tool_call>";
}

json::array tools_of(std::string_view properties) {
  return json::array{
      {{"type", "function"},
       {"function",
        {{"name", "f"},
         {"parameters", {{"type", "object"}, {"properties", parse_json(properties).value()}}}}}}};
}
json::value argument(std::string_view schema, const std::string& text) {
  SplitterOptions options;
  options.tools = tools_of("{\"x\": " + std::string(schema) + "}");
  const Outcome o = split("</think>\n\n" + call_text("f", {{"x", text}}), options);
  EXPECT_EQ(o.calls.size(), 1u);
  return o.calls.empty() ? json::value() : o.calls[0].arguments.at("x");
}

// --- thinking and answer ---

TEST(OutputSplitter, PartsThinkingFromTheAnswer) {
  const Outcome o = split("first\nsecond\n</think>\n\nthe answer\n");
  EXPECT_EQ(o.reasoning, "first\nsecond");
  EXPECT_EQ(o.answer, "the answer\n");
  EXPECT_EQ(o.order, "ra");
  EXPECT_TRUE(o.closed);
}
TEST(OutputSplitter, WithoutThinkingAllIsAnswerVerbatim) {
  const Outcome o = split("  x </think> y ", {.starts_thinking = false});
  EXPECT_EQ(o.answer, "  x </think> y ");
  EXPECT_EQ(o.reasoning, "");
  EXPECT_TRUE(o.closed);
}
TEST(OutputSplitter, ThinkingThatTheModelOpensItself) {
  const Outcome o = split("\n<think>\nhm\n</think>\n\nyes", {.starts_thinking = false});
  EXPECT_EQ(o.reasoning, "hm");
  EXPECT_EQ(o.answer, "yes");
}
TEST(OutputSplitter, DropsOneRepeatedThinkAtTheStart) {
  EXPECT_EQ(split("<think>\nhm\n</think>\n\nyes").reasoning, "hm");
  EXPECT_EQ(split("\n<think>\nhm\n</think>\n\nyes").reasoning, "hm");
  EXPECT_EQ(split("<think><think>hm</think>yes").reasoning, "<think>hm");
  EXPECT_EQ(split("hm <think> hm</think>yes").reasoning, "hm <think> hm");
  EXPECT_EQ(split("hm</think><think>x").answer, "<think>x");
}
TEST(OutputSplitter, EmptyThinkingHasNoText) {
  const Outcome o = split("\n</think>\n\nyes");
  EXPECT_EQ(o.reasoning, "");
  EXPECT_EQ(o.answer, "yes");
  EXPECT_EQ(o.order, "a");
}
TEST(OutputSplitter, KeepsTheIndentationOfTheFirstLine) {
  EXPECT_EQ(split("x</think>\n\n    code\n").answer, "    code\n");
  EXPECT_EQ(split("x</think> y").answer, " y");
}
// T29, Rapid-MLX#575, imp#509: reasoning leaked into the answer when it was cut in a thought.
TEST(OutputSplitter, UnclosedThinkingIsReasoningToTheLastByte) {
  const Outcome o = split("long thought \n </thi");
  EXPECT_EQ(o.reasoning, "long thought \n </thi");
  EXPECT_EQ(o.answer, "");
  EXPECT_FALSE(o.closed);
  EXPECT_FALSE(o.unfinished);
}
TEST(OutputSplitter, HoldsBackWhatMayBeATag) {
  OutputSplitter splitter(byte_tokenizer(), {});
  std::vector<SplitEvent> events;
  for (const char c : std::string("a \n</thin"))
    splitter.push(static_cast<unsigned char>(c), events);
  EXPECT_EQ(collect(splitter, events).reasoning, "a");
  for (const char c : std::string("x"))
    splitter.push(static_cast<unsigned char>(c), events);
  EXPECT_EQ(collect(splitter, events).reasoning, "a \n</thinx");
  for (const char c : std::string("<</think>"))
    splitter.push(static_cast<unsigned char>(c), events);
  EXPECT_EQ(collect(splitter, events).reasoning, "a \n</thinx<");
  EXPECT_TRUE(splitter.thinking_closed());
  EXPECT_EQ(splitter.phase(), Phase::answering);
}
TEST(OutputSplitter, CountsATokenToThePhaseItWasReadIn) {
  const Tokenizer& t = pebble_tokenizer();
  const auto ids = t.encode("one two</think>\n\nthree", true);
  OutputSplitter splitter(t, {});
  std::vector<SplitEvent> events;
  std::int64_t thinking = 0;
  for (const TokenId id : ids) {
    thinking += splitter.phase() == Phase::thinking ? 1 : 0;
    splitter.push(id, events);
  }
  EXPECT_EQ(splitter.reasoning_tokens(), thinking);
  EXPECT_EQ(splitter.reasoning_tokens() + splitter.answer_tokens(),
            static_cast<std::int64_t>(ids.size()));
  EXPECT_GE(splitter.answer_tokens(), 2);
}
TEST(OutputSplitter, ControlTokensHaveNoText) {
  const Tokenizer& t = pebble_tokenizer();
  const auto ids = t.encode("hm</think>\n\na<|im_start|>b<|im_end|>", true);
  EXPECT_EQ(run(t, ids, {}).answer, "ab");
}
TEST(OutputSplitter, BytesThatAreNoTextBecomeReplacements) {
  EXPECT_EQ(split("a\xFF</think>b\xE4\xBD").reasoning, "a\uFFFD");
  EXPECT_EQ(split("a\xFF</think>b\xE4\xBD").answer, "b\uFFFD");
}

// --- tool calls ---

TEST(OutputSplitter, ReadsACall) {
  SplitterOptions options;
  options.tools = tools_of(R"({"a": {"type": "string"}, "b": {"type": "integer"}})");
  const Outcome o = split(
      "use it\n</think>\n\nLet me see.\n\n" + call_text("f", {{"a", "x\ny"}, {"b", "5"}}), options);
  EXPECT_EQ(o.reasoning, "use it");
  EXPECT_EQ(o.answer, "Let me see.");
  ASSERT_EQ(o.calls.size(), 1u);
  EXPECT_EQ(o.calls[0].name, "f");
  EXPECT_EQ(o.calls[0].arguments, (json::object{{"a", "x\ny"}, {"b", 5}}));
  EXPECT_EQ(o.order, "rac");
  EXPECT_FALSE(o.unfinished);
}
TEST(OutputSplitter, ReadsSeveralCallsAndNumbersThem) {
  const std::string text = "</think>\n\n" + call_text("f", {}) + "\n" +
                           call_text("g", {{"k", "v"}}) + "\n\n" + call_text("f", {}) + "\n";
  const Outcome o = split(text);
  ASSERT_EQ(o.calls.size(), 3u);
  EXPECT_EQ(o.answer, "");
  EXPECT_EQ(o.calls[1].name, "g");
  EXPECT_EQ(o.calls[1].arguments, (json::object{{"k", "v"}}));
  EXPECT_NE(o.calls[0].id, o.calls[2].id);
  EXPECT_EQ(o.calls[0].id, split(text).calls[0].id);
  SplitterOptions other;
  other.call_id_seed = 7;
  EXPECT_NE(o.calls[0].id, split(text, other).calls[0].id);
}
TEST(OutputSplitter, ACallClosesThinkingThatIsOpen) {
  const Outcome o = split("I will call\n" + call_text("f", {}));
  EXPECT_EQ(o.reasoning, "I will call");
  EXPECT_EQ(o.calls.size(), 1u);
  EXPECT_TRUE(o.closed);
}
TEST(OutputSplitter, AnUnfinishedCallIsSaidAndShown) {
  const std::string whole = call_text("f", {{"a", "b"}});
  for (std::size_t n = std::string("<tool_call>").size(); n < whole.size(); ++n) {
    const Outcome o = split("</think>\n\nx " + whole.substr(0, n));
    EXPECT_TRUE(o.unfinished) << n;
    EXPECT_TRUE(o.calls.empty());
    EXPECT_EQ(o.answer, "x " + whole.substr(0, n));
  }
}
TEST(OutputSplitter, WhatIsNoCallIsText) {
  for (const char* body : {"", "nonsense", "<function=>\n</function>", "{\"name\": 5}", "{broken",
                           "<function=f>\njunk\n</function>"}) {
    const std::string text = "a <tool_call>" + std::string(body) + "</tool_call> b";
    const Outcome o = split("</think>" + text);
    EXPECT_EQ(o.answer, text);
    EXPECT_TRUE(o.calls.empty());
    EXPECT_FALSE(o.unfinished);
  }
}
TEST(OutputSplitter, ValuesMayHoldTheTextOfTags) {
  const std::string value = "a </tool_call> b </parameter> c <tool_call> </function> <think>";
  const Outcome o = split("</think>" + call_text("f", {{"x", value}, {"y", "z"}}));
  ASSERT_EQ(o.calls.size(), 1u);
  EXPECT_EQ(o.calls[0].arguments, (json::object{{"x", value}, {"y", "z"}}));
}
TEST(OutputSplitter, ValuesLoseOnlyTheLineBreaksOfTheForm) {
  const Outcome o = split("</think>" + call_text("f", {{"x", "\n  two\n"}, {"y", ""}}));
  ASSERT_EQ(o.calls.size(), 1u);
  EXPECT_EQ(o.calls[0].arguments, (json::object{{"x", "\n  two\n"}, {"y", ""}}));
  const Outcome tight = split(
      "</think><tool_call><function=f><parameter=x>1</parameter></function>"
      "</tool_call>");
  ASSERT_EQ(tight.calls.size(), 1u);
  EXPECT_EQ(tight.calls[0].arguments, (json::object{{"x", "1"}}));
}
TEST(OutputSplitter, AMissingFunctionEndIsForgiven) {
  const Outcome o =
      split("</think><tool_call>\n<function=f>\n<parameter=x>\n1\n</parameter>\n</tool_call>");
  ASSERT_EQ(o.calls.size(), 1u);
  EXPECT_EQ(o.calls[0].arguments, (json::object{{"x", "1"}}));
}
TEST(OutputSplitter, ReadsTheJsonFormToo) {
  const Outcome o = split(
      "</think>\n\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, 2]}}\n</tool_call>");
  ASSERT_EQ(o.calls.size(), 1u);
  EXPECT_EQ(o.calls[0].name, "f");
  EXPECT_EQ(o.calls[0].arguments, (json::object{{"x", {1, 2}}}));
}
TEST(OutputSplitter, TextAfterACallIsAnswer) {
  const Outcome o = split("</think>\n\n" + call_text("f", {}) + "\n\n  and so on ");
  EXPECT_EQ(o.answer, "  and so on ");
  EXPECT_EQ(o.order, "ca");
}

// --- types of arguments ---

TEST(TypedArguments, StringsStayVerbatim) {
  EXPECT_EQ(argument(R"({"type": "string"})", "5"), json::value("5"));
  EXPECT_EQ(argument(R"({"type": "string"})", " {\"a\": 1} "), json::value(" {\"a\": 1} "));
  EXPECT_EQ(argument(R"({"type": "string"})", "null"), json::value("null"));
  EXPECT_EQ(argument("{}", "5"), json::value("5"));
  EXPECT_EQ(argument("true", "5"), json::value("5"));
}
TEST(TypedArguments, OthersAreReadAsJson) {
  EXPECT_EQ(argument(R"({"type": "integer"})", "5"), json::value(5));
  EXPECT_EQ(argument(R"({"type": "integer"})", " -7 "), json::value(-7));
  EXPECT_EQ(argument(R"({"type": "integer"})", "3.0"), json::value(3));
  EXPECT_EQ(argument(R"({"type": "number"})", "5"), json::value(5));
  EXPECT_EQ(argument(R"({"type": "number"})", "16.5"), json::value(16.5));
  EXPECT_EQ(argument(R"({"type": "boolean"})", "true"), json::value(true));
  EXPECT_EQ(argument(R"({"type": "boolean"})", "False"), json::value(false));
  EXPECT_EQ(argument(R"({"type": "array"})", "[1, \"a\"]"), (json::value{1, "a"}));
  EXPECT_EQ(argument(R"({"type": "object"})", "{\"a\": {\"b\": null}}"),
            parse_json(R"({"a": {"b": null}})").value());
  EXPECT_EQ(argument(R"({"type": "null"})", "None"), json::value(nullptr));
}
TEST(TypedArguments, WhatDoesNotFitStaysAString) {
  EXPECT_EQ(argument(R"({"type": "integer"})", "five"), json::value("five"));
  EXPECT_EQ(argument(R"({"type": "integer"})", "5.5"), json::value("5.5"));
  EXPECT_EQ(argument(R"({"type": "boolean"})", "1"), json::value("1"));
  EXPECT_EQ(argument(R"({"type": "array"})", "[1, 2"), json::value("[1, 2"));
  EXPECT_EQ(argument(R"({"type": "object"})", "[1]"), json::value("[1]"));
  EXPECT_EQ(argument(R"({"type": "number"})", "1e999"), json::value("1e999"));
}
TEST(TypedArguments, SeveralTypesAreTriedInTurn) {
  EXPECT_EQ(argument(R"({"type": ["string", "null"]})", "null"), json::value(nullptr));
  EXPECT_EQ(argument(R"({"type": ["string", "null"]})", "5"), json::value("5"));
  EXPECT_EQ(argument(R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", "5"),
            json::value(5));
  EXPECT_EQ(argument(R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})", "a"),
            json::value("a"));
  EXPECT_EQ(argument(R"({"oneOf": [{"type": "array"}, {"type": "null"}]})", "[]"),
            json::value(json::array{}));
  EXPECT_EQ(argument(R"({"enum": ["1", "2"]})", "1"), json::value("1"));
  EXPECT_EQ(argument(R"({"enum": [1, 2]})", "1"), json::value(1));
  EXPECT_EQ(argument(R"({"const": true})", "true"), json::value(true));
}
TEST(TypedArguments, LocalReferencesAreFollowed) {
  const auto parameters = parse_json_object(R"({"properties": {"p": {"$ref": "#/$defs/Point"},
      "loop": {"$ref": "#/properties/loop"}}, "$defs": {"Point": {"type": "object"}}})")
                              .value();
  EXPECT_EQ(typed_argument(&parameters, "p", "{\"x\": 1}"), (json::value{{"x", 1}}));
  EXPECT_EQ(typed_argument(&parameters, "loop", "5"), json::value("5"));
  EXPECT_EQ(typed_argument(nullptr, "p", "5"), json::value("5"));
}
TEST(TypedArguments, ToolsMayStandWithoutTheirWrapper) {
  const auto bare = parse_json(R"([{"name": "f", "input_schema": {"properties": {}}}, 5, {}])");
  EXPECT_NE(find_parameters(bare->as_array(), "f"), nullptr);
  EXPECT_EQ(find_parameters(bare->as_array(), "g"), nullptr);
}

TEST(OutputSplitter, CallsOfTheBundledEvaluationComeBackExactly) {
  int calls = 0;
  for (const json::object& row : read_json_lines("models/pebble/eval.jsonl")) {
    if (row.at("task") != "tool_call") continue;
    const json::object& call = row.at("call").as_object();
    std::vector<std::pair<std::string, std::string>> arguments;
    for (const auto& [key, value] : call.at("arguments").as_object())
      arguments.emplace_back(key,
                             value.is_string() ? std::string(value.as_string()) : to_json(value));
    SplitterOptions options;
    options.tools = row.at("tools").as_array();
    const std::string name(call.at("name").as_string());
    const std::string text = "I call it.\n</think>\n\n" + call_text(name, arguments);
    const Tokenizer& t = pebble_tokenizer();
    const Outcome o = run(t, t.encode(text, true), options);
    ASSERT_EQ(o.calls.size(), 1u) << text;
    EXPECT_EQ(o.calls[0].name, name);
    EXPECT_EQ(to_json(o.calls[0].arguments), to_json(call.at("arguments")));
    ++calls;
  }
  EXPECT_EQ(calls, 20);
}

// --- however the text falls into tokens ---

const std::vector<std::string>& sample_outputs() {
  static const std::vector<std::string> outputs = {
      "first\n\u4e2d\u6587 <b> </thin \n</think>\n\nanswer < 5 <tool_ca \n",
      "<think>\nagain\n\n</think>\n\n  indented\n",
      "plan\n</think>\n\nI look.\n\n" + call_text("f", {{"x", "a\nb"}, {"n", "5"}}) + "\n" +
          call_text("g", {}) + "\n",
      "no end of thinking\n" + call_text("f", {{"x", "</tool_call></parameter>"}}) + " tail",
      "x</think><tool_call>nonsense</tool_call>y<tool_call>\n<function=f>\n<parameter=a>\n1",
      "\n</think>\n\n\U0001f600 \U0001f469\u200d\U0001f4bb </think> <think>",
      "</think><tool_call>{\"name\": \"f\", \"arguments\": {\"n\": 5}}</tool_call>",
      "open < <t </ </think",
  };
  return outputs;
}

void expect_same(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.reasoning, b.reasoning);
  EXPECT_EQ(a.answer, b.answer);
  EXPECT_EQ(a.order, b.order);
  EXPECT_EQ(a.closed, b.closed);
  EXPECT_EQ(a.unfinished, b.unfinished);
  ASSERT_EQ(a.calls.size(), b.calls.size());
  for (std::size_t i = 0; i < a.calls.size(); ++i) {
    EXPECT_EQ(a.calls[i].id, b.calls[i].id);
    EXPECT_EQ(a.calls[i].name, b.calls[i].name);
    EXPECT_EQ(to_json(a.calls[i].arguments), to_json(b.calls[i].arguments));
  }
}

TEST(OutputSplitter, EverySplitPointGivesTheSameEvents) {
  for (const bool thinking : {true, false}) {
    for (const std::string& text : sample_outputs()) {
      std::vector<std::string> parts;
      for (std::size_t k = 1; k < text.size(); ++k) {
        parts.push_back(text.substr(0, k));
        parts.push_back(text.substr(k));
      }
      parts.push_back(text);
      const auto tokenizer = tokenizer_with(parts);
      SplitterOptions options;
      options.starts_thinking = thinking;
      options.tools = tools_of(R"({"n": {"type": "integer"}})");
      const auto whole = static_cast<TokenId>(256 + parts.size() - 1);
      const Outcome expected = run(*tokenizer, {whole}, options);
      for (TokenId id = 256; id + 1 < whole; id += 2) {
        SCOPED_TRACE(text + " after " + std::string(tokenizer->bytes_of(id)));
        expect_same(run(*tokenizer, {id, id + 1}, options), expected);
      }
      expect_same(run(*tokenizer, byte_tokenizer().encode(text, false), options), expected);
      const Tokenizer& pebble = pebble_tokenizer();  // tags as single added tokens
      expect_same(run(pebble, pebble.encode(text, true), options), expected);
    }
  }
}

RC_GTEST_PROP(OutputSplitter, AnyOrderOfTagsEndsAndLosesNoWord, ()) {
  const auto parts =
      *rc::gen::container<std::vector<std::string>>(rc::gen::elementOf(std::vector<std::string>{
          "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=f>", "</function>",
          "<parameter=x>", "</parameter>", "word", "\n", " ", "<", "\u4e2d"}));
  std::string text;
  std::size_t words = 0;
  for (const std::string& part : parts)
    text += part, words += part == "word" ? 1 : 0;
  const Outcome byte_by_byte = split(text);
  const Tokenizer& pebble = pebble_tokenizer();
  const Outcome by_token = run(pebble, pebble.encode(text, true), {});
  RC_ASSERT(byte_by_byte.reasoning == by_token.reasoning);
  RC_ASSERT(byte_by_byte.answer == by_token.answer);
  RC_ASSERT(byte_by_byte.calls.size() == by_token.calls.size());
  std::string all = byte_by_byte.reasoning + "|" + byte_by_byte.answer;
  for (const ToolCall& call : byte_by_byte.calls)
    all += "|" + to_json(call.arguments);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = all.find("word", at)) != std::string::npos; at += 4)
    ++found;
  // A parameter that is given twice keeps its last value; all else is still there.
  if (byte_by_byte.calls.empty()) RC_ASSERT(found == words);
}

TEST(OutputSplitter, AdversarialOutputTakesLinearTime) {
  const auto many = [](std::string_view part) {
    std::string text;
    while (text.size() < (1u << 20))
      text += part;
    return text;
  };
  const std::string open = "</think><tool_call>\n<function=f>\n<parameter=a>\n";
  for (const std::string& text :
       {many("<"), many(" "), many("</think"), many("<think>"), many("<tool_call>"),
        many("</tool_call>"), open + many("</tool_call>"), open + many("</parameter>"),
        open + many("</parameter> \n "), open + many("</parameter>\n<parameter=a>\n"),
        "</think><tool_call>" + many("\n") + "<function=f><parameter=a>" + many("</tool_call>"),
        "</think>" + many("<tool_call></tool_call>"), many(" <"), many("\n</tool_call"),
        "</think><tool_call>{" + many("[") + "</tool_call>",
        "</think><tool_call><function=" + many("f") + "</tool_call>", many("\xF0\x9F"),
        "</think>" + many(call_text("f", {{"x", "1"}}))}) {
    const std::clock_t begin = std::clock();
    const Outcome o = split(text);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_LT(seconds, 5.0) << text.substr(0, 60);  // measured: 0.05 to 0.2 s
  }
}

}  // namespace
}  // namespace ponder::text
