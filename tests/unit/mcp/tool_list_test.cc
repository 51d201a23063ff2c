// The list of tools, and what is said to arguments that are wrong.
#include <set>

#include "tests/unit/mcp/tools_fixture.h"

namespace ponder::mcp {
namespace {
using ::testing::EndsWith;
using testing::envelope;
using testing::FakeJob;
using ::testing::HasSubstr;
using testing::id_of;
using ::testing::Not;
using ::testing::StartsWith;
using testing::ToolsTest;

// T34, RedHatInsights/insights-mcp#340: an over-long description was cut.
TEST_F(ToolsTest, TheListIsFixedSmallAndSaysWhatIsChecked) {
  const json::array& list = tools_.list();
  ASSERT_EQ(list.size(), 6u);
  const char* order[] = {"ask", "submit", "status", "result", "cancel", "health"};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(list.at(i).at("name").as_string(), order[i]);
  EXPECT_LT(to_json(list).size() + 200, 12'288u);
  EXPECT_LE(instructions().size(), 2'048u);
  EXPECT_TRUE(is_valid_utf8(instructions()));
  for (const Tool* tool : all_tools()) {
    const json::object definition = parse_json_object(tool->definition).value();
    EXPECT_LE(definition.at("description").as_string().size(), 2'048u) << tool->name;
    const json::object& schema = definition.at("inputSchema").as_object();
    EXPECT_FALSE(schema.at("additionalProperties").as_bool());
    const json::object& properties = schema.at("properties").as_object();
    std::set<std::string> required;
    if (schema.contains("required"))
      for (const json::value& name : schema.at("required").as_array())
        required.insert(std::string(name.as_string()));
    EXPECT_EQ(properties.size(), tool->arguments.size()) << tool->name;
    for (const Argument& a : tool->arguments) {
      EXPECT_TRUE(properties.contains(a.name)) << tool->name << "." << a.name;
      EXPECT_EQ(required.count(std::string(a.name)) != 0, a.required)
          << tool->name << "." << a.name;
    }
  }
}

TEST_F(ToolsTest, TheToolsForTheMainPathAreNeverHidden) {
  for (const json::value& row : tools_.list()) {
    const std::string name(row.at("name").as_string());
    const bool always = row.as_object().contains("_meta") &&
                        row.at("_meta").as_object().contains("anthropic/alwaysLoad");
    EXPECT_EQ(always, name != "cancel" && name != "health") << name;
    EXPECT_FALSE(row.at("annotations").at("openWorldHint").as_bool());
  }
}

TEST_F(ToolsTest, BadArgumentsAreToolErrorsThatSayWhatIsRight) {
  const std::string id = id_of(1);
  const struct {
    const char* tool;
    json::object arguments;
    const char* says;
  } cases[] = {
      {"ask", {}, "\"question\" is missing"},
      {"ask", {{"question", ""}}, "not empty"},
      {"ask", {{"question", 5}}, "must be a string"},
      {"ask", {{"question", nullptr}}, "\"question\" is missing"},
      {"ask", {{"question", "x"}, {"effort", "extreme"}}, "\"xhigh\""},
      {"ask", {{"question", "x"}, {"effort", -1}}, "thinking tokens"},
      {"ask", {{"question", "x"}, {"effort", 1.5}}, "thinking tokens"},
      {"ask", {{"question", "x"}, {"wait_s", -1}}, "at least 0"},
      {"ask", {{"question", "x"}, {"wait_s", "10"}}, "must be a number"},
      {"ask", {{"question", "x"}, {"files", "a.txt"}}, "array"},
      {"ask", {{"question", "x"}, {"files", json::array{1}}}, "array"},
      {"ask",
       {{"prompt", "x"}},
       "Its arguments are: question (required), context, files, effort, wait_s"},
      {"submit", {{"task", "x"}, {"label", std::string(201, 'l')}}, "0 to 200 characters"},
      {"submit", {{"task", "x"}, {"max_answer_tokens", 0}}, "from 1 to"},
      {"submit", {{"task", "x"}, {"max_answer_tokens", 1.5}}, "whole number"},
      {"submit", {{"task", "x"}, {"deadline_s", 0}}, "from 0.001"},
      {"submit", {{"task", "x"}, {"schema", "{}"}}, "an object"},
      {"submit", {{"task", "x"}, {"force_new", 1}}, "true or false"},
      {"submit", {{"context", "x"}}, "\"task\" is missing"},
      {"submit", {{"mode", "resume"}}, "needs \"continue_from\""},
      {"submit", {{"task", "x"}, {"mode", "answer_now"}}, "needs \"continue_from\""},
      {"submit", {{"task", "x"}, {"mode", "go_on"}}, "\"answer_now\""},
      {"submit", {{"task", "x"}, {"on_limit", "wait"}}, "\"answer\""},
      {"submit", {{"task", "x"}, {"continue_from", "x"}}, "no job \"x\""},
      {"status", {{"job_id", "../../etc"}}, "26 characters"},
      {"status", {{"job_id", id}, {"job_ids", json::array{id}}}, "not both"},
      {"status", {{"job_ids", json::array{}}}, "1 to 20"},
      {"status", {{"job_id", id}}, "no job"},
      {"status", {{"job_ids", json::array{id}}}, "no job"},
      {"result", {{"job_id", id}, {"part", "all"}}, "\"reasoning\""},
      {"result", {{"job_id", id}, {"offset", -1}}, "at least 0"},
      {"result", {{"job_id", id}, {"limit", 0}}, "at least 1"},
      {"result", {{"job_id", id}}, "no job"},
      {"cancel", {{"job_id", id}}, "no job"},
      {"cancel", {{"job_id", "ABC"}}, "26 characters"},
      {"health", {{"probe", "yes"}}, "true or false"},
  };
  for (const auto& c : cases) {
    const ToolResult r = failing(c.tool, c.arguments);
    EXPECT_THAT(r.text, HasSubstr(c.says)) << c.tool << to_json(c.arguments);
  }
}

TEST_F(ToolsTest, AllComplaintsComeAtOnce) {
  const ToolResult r = failing("ask", {{"wait_s", -1}, {"modell", "x"}});
  EXPECT_THAT(r.text, HasSubstr("wait_s"));
  EXPECT_THAT(r.text, HasSubstr("modell"));
  EXPECT_THAT(r.text, HasSubstr("\"question\" is missing"));
}

}  // namespace
}  // namespace ponder::mcp
