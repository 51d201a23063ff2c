#include "engine/text/chat_template.h"

#include <gtest/gtest.h>

#include "tests/unit/text/golden_files.h"

namespace ponder::text {
namespace {

Result<std::string> render(std::string_view source, const json::object& variables) {
  TRY(const auto compiled, ChatTemplate::compile(source));
  TRY(const auto pieces, compiled->render(variables));
  return join(pieces);
}

/// A golden row holds an output, or says that the reference refuses it.
void expect_row(std::string_view source, const json::object& variables, const json::object& row) {
  const auto text = render(source, variables);
  if (row.contains("error")) {
    EXPECT_FALSE(text.has_value()) << "rendered: " << testing::PrintToString(*text)
                                   << "\nthe reference: " << row.at("error").as_string();
    if (!text) {
      EXPECT_EQ(text.error().code, ErrorCode::bad_request);
    }
    return;
  }
  const std::string expected(row.at("output").as_string());
  ASSERT_TRUE(text.has_value()) << text.error().message << "\nexpected: " << expected;
  EXPECT_EQ(*text, expected);
}

TEST(ChatTemplate, PrintsEachFeatureAsJinja2Does) {
  const auto variables =
      parse_json_object(read_source_file("tests/golden/text/template_variables.json")).value();
  const auto rows = read_golden_lines("template_features.jsonl");
  ASSERT_GE(rows.size(), 150u);
  for (const json::object& row : rows) {
    const std::string source(row.at("template").as_string());
    SCOPED_TRACE("template: " + source);
    expect_row(source, variables, row);
  }
}

TEST(ChatTemplate, NumbersAtTheEdgeOfTheirRange) {
  const auto printed = [](std::string_view source) {
    const auto text = render(source, {});
    return text ? *text : "refused";
  };
  const std::string most = "(2**126 - 1 + 2**126)";
  EXPECT_EQ(printed("{{ 'abcdef'[2::" + most + "] }}"), "c");
  EXPECT_EQ(printed("{{ [1, 2, 3][1::-" + most + "] }}"), "[2]");
  EXPECT_EQ(printed("{{ " + most + " | abs == " + most + " }}"), "True");
  EXPECT_EQ(printed("{{ (-" + most + " - 1) | abs }}"), "refused");
  EXPECT_EQ(printed("{{ " + most + " + 1 }}"), "refused");
}

void expect_conversations(std::string_view template_path, std::string_view golden) {
  const std::string source = read_source_file(template_path);
  const auto rows = read_golden_lines(golden);
  ASSERT_GE(rows.size(), 40u);
  for (const json::object& row : rows) {
    SCOPED_TRACE(to_json(row.at("title")) + " " + to_json(row.at("variables")));
    expect_row(source, row.at("variables").as_object(), row);
  }
}

TEST(ChatTemplate, RendersConversationsOfTheBundledModelAsJinja2Does) {
  expect_conversations("models/pebble/chat_template.jinja", "conversations_pebble.jsonl");
}
TEST(ChatTemplate, RendersConversationsOfALargeTemplateAsJinja2Does) {
  expect_conversations("tests/golden/text/agent_template.jinja", "conversations_agent.jsonl");
}

TEST(ChatTemplate, KnowsWhichVariablesItReads) {
  const auto bundled =
      ChatTemplate::compile(read_source_file("models/pebble/chat_template.jinja")).value();
  EXPECT_TRUE(bundled->reads("reasoning_effort"));
  EXPECT_TRUE(bundled->reads("enable_thinking"));
  EXPECT_FALSE(bundled->reads("preserve_thinking"));
  const auto other = ChatTemplate::compile("{{ m.reasoning_effort }}{% set x = 1 %}").value();
  EXPECT_FALSE(other->reads("reasoning_effort"));
  EXPECT_TRUE(other->reads("m"));
  EXPECT_FALSE(other->reads("x"));
}

TEST(ChatTemplate, RefusalsNameTheLine) {
  const auto unknown = ChatTemplate::compile("a\n{{ b }}\n{% frobnicate %}\n");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("frobnicate"), std::string::npos);
  EXPECT_NE(unknown.error().message.find("(line 3)"), std::string::npos);
  const auto raised = render("a\n\n{{ raise_exception('so not') }}", {});
  ASSERT_FALSE(raised.has_value());
  EXPECT_NE(raised.error().message.find("so not"), std::string::npos);
  EXPECT_NE(raised.error().message.find("(line 3)"), std::string::npos);
}

TEST(ChatTemplate, TellsTheTimeItIsGiven) {
  const json::object variables = {{"now", 1785542400}};
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %H:%M:%S %B %b %A %a %j %-d %I%p') }}", variables),
            "2026-08-01 00:00:00 August Aug Saturday Sat 213 1 12AM");
  EXPECT_FALSE(render("{{ strftime_now('%Q') }}", variables).has_value());
  EXPECT_FALSE(render("{{ strftime_now('%Y') }}", {}).has_value());
}

TEST(ChatTemplate, OneTemplateServesManyRenders) {
  const auto compiled = ChatTemplate::compile(
                            "{% set ns = namespace(n=0) %}{% for x in xs %}"
                            "{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}")
                            .value();
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(join(compiled->render({{"xs", {1, 2, i}}}).value()), std::to_string(3 + i));
}

}  // namespace
}  // namespace ponder::text
