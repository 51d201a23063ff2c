#include "jobs/schema_check.h"

#include <gtest/gtest.h>

namespace ponder::jobs {
namespace {

json::value value(const std::string& text) {
  auto parsed = parse_json(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(json::value());
}
bool fits(const std::string& schema, const std::string& answer) {
  auto compiled = compile_schema(value(schema));
  EXPECT_TRUE(compiled) << (compiled ? "" : compiled.error().message);
  return compiled && answer_fits_schema(*compiled, answer).has_value();
}
std::string refused(const std::string& schema) {
  auto compiled = compile_schema(value(schema));
  return compiled ? "" : compiled.error().message;
}

constexpr const char* kPoint =
    R"({"type":"object","required":["x"],"properties":{"x":{"type":"integer","minimum":0},
        "tags":{"type":"array","items":{"type":"string"},"uniqueItems":true}},
        "additionalProperties":false})";

TEST(SchemaCheck, AcceptsWhatFitsAndOnlyThat) {
  EXPECT_TRUE(fits(kPoint, R"({"x":3})"));
  EXPECT_TRUE(fits(kPoint, R"( {"x":3,"tags":["a","b"]} )"));
  EXPECT_FALSE(fits(kPoint, R"({"x":-1})"));
  EXPECT_FALSE(fits(kPoint, R"({"x":"3"})"));
  EXPECT_FALSE(fits(kPoint, R"({"x":3,"y":1})"));
  EXPECT_FALSE(fits(kPoint, R"({"x":3,"tags":["a","a"]})"));
  EXPECT_FALSE(fits(kPoint, "x is 3"));
  EXPECT_FALSE(fits(kPoint, ""));
}

TEST(SchemaCheck, TakesTheAnswerOutOfOneFencedBlock) {
  EXPECT_TRUE(fits(kPoint, "```json\n{\"x\":3}\n```"));
  EXPECT_TRUE(fits(kPoint, "Here it is:\n```\n{\"x\":3}\n```\n"));
  EXPECT_FALSE(fits(kPoint, "```json\n{\"x\":3}\n```\n```json\n{\"x\":3}\n```"));
  EXPECT_FALSE(fits(kPoint, "```python\n{\"x\":3}\n```"));
  // A fence inside a string is no fence.
  EXPECT_TRUE(fits(R"({"type":"object"})", "{\"code\":\"```json\\n1\\n```\"}"));
}

TEST(SchemaCheck, FollowsReferencesInsideTheDocument) {
  const std::string schema =
      R"({"definitions":{"p":{"type":"integer"}},"type":"array","items":{"$ref":"#/definitions/p"}})";
  EXPECT_TRUE(fits(schema, "[1,2]"));
  EXPECT_FALSE(fits(schema, R"(["a"])"));
}

TEST(SchemaCheck, RefusesWhatCannotBeCheckedSafely) {
  EXPECT_NE(refused(R"({"type":"string","pattern":"(a*)*b"})").find("pattern"), std::string::npos);
  EXPECT_NE(refused(R"({"properties":{"a":{"patternProperties":{}}}})"), "");
  EXPECT_NE(refused(R"({"$ref":"https://example.com/s.json"})"), "");
  EXPECT_NE(refused(R"({"properties":{"a":{"$ref":"#"}}})"), "");
  EXPECT_NE(refused(R"({"anyOf":[{"$ref":"#"}]})"), "");
  EXPECT_NE(refused(R"({"$ref":"#/nowhere"})"), "");
  EXPECT_NE(refused(R"("string")"), "");
  EXPECT_NE(refused(R"({"type":"unheard_of"})"), "");
  EXPECT_NE(refused("{\"description\":\"" + std::string(70'000, 'x') + "\"}"), "");
  std::string deep = "{}";
  for (int i = 0; i < 40; ++i)
    deep = R"({"not":)" + deep + "}";
  EXPECT_NE(refused(deep), "");
  // A long value that a thousand places refer to, and a deep one that is referred to from deep.
  std::string long_one =
      R"({"definitions":{"s":{"enum":[")" + std::string(20'000, 'x') + R"("]}},"properties":{)";
  for (int i = 0; i < 1000; ++i)
    long_one += "\"p" + std::to_string(i) + R"(":{"$ref":"#/definitions/s"},)";
  EXPECT_NE(refused(long_one + R"("last":{}}})").find("written out"), std::string::npos);
  std::string inner = R"({"$ref":"#/definitions/s"})";
  for (int i = 0; i < 12; ++i)
    inner = R"({"properties":{"a":)" + inner + "}}";
  const std::string brackets =
      R"({"definitions":{"s":{"const":)" + std::string(50, '[') + std::string(50, ']') + "}}";
  EXPECT_NE(refused(brackets + R"(,"items":)" + inner + "}").find("brackets"), std::string::npos);
  // References that double at each of 20 levels.
  std::string doubling = R"({"definitions":{"d0":{"type":"integer"})";
  for (int i = 1; i < 20; ++i) {
    const std::string ref = R"({"$ref":"#/definitions/d)" + std::to_string(i - 1) + "\"}";
    doubling += ",\"d" + std::to_string(i) + "\":{\"allOf\":[" + ref + "," + ref + "]}";
  }
  EXPECT_NE(refused(doubling + R"(},"$ref":"#/definitions/d19"})"), "");
}

TEST(SchemaCheck, NamesOfPropertiesAreNotKeywords) {
  EXPECT_TRUE(fits(R"({"properties":{"pattern":{"type":"string"},"format":{"type":"integer"}},
                       "required":["pattern"]})",
                   R"({"pattern":"x","format":1})"));
}

TEST(SchemaCheck, FormatIsAnAnnotation) {
  // The validator's own check would run a regex over the text.
  EXPECT_TRUE(
      fits(R"({"type":"string","format":"date"})", "\"" + std::string(500'000, '1') + "\""));
}

TEST(SchemaCheck, AnswersAreBounded) {
  std::string list = "[1";
  for (int i = 0; i < 5000; ++i)
    list += "," + std::to_string(i);
  EXPECT_FALSE(fits(R"({"type":"array","uniqueItems":true})", list + "]"));
  EXPECT_FALSE(fits(R"({"type":"array"})", std::string(100'000, '[')));
}

}  // namespace
}  // namespace ponder::jobs
