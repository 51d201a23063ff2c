#include "jobs/schema_check.h"

#include <gtest/gtest.h>

#include "jobs/schema_fit.h"

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
std::string misfit(const std::string& schema, const std::string& answer) {
  const auto compiled = compile_schema(value(schema));
  const auto fit = answer_fits_schema(compiled.value_or(json::value(false)), answer);
  return fit ? "" : fit.error().message;
}
/// What `entry` is, `count` times.
std::string repeated(const std::string& entry, int count) {
  std::string out = entry;
  for (int i = 1; i < count; ++i)
    out += "," + entry;
  return out;
}
std::string numbers_to(int n) {
  std::string out = "0";
  for (int i = 1; i < n; ++i)
    out += "," + std::to_string(i);
  return out;
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

TEST(SchemaCheck, SaysWhereAndWhy) {
  const std::string list = R"({"properties":{"a":{"items":{"type":"string","minLength":2}}}})";
  EXPECT_NE(misfit(list, R"({"a":["xx",1]})").find("/a/1: it is not of type \"string\""),
            std::string::npos);
  EXPECT_NE(misfit(list, R"({"a":["ä"]})").find("/a/0: its \"minLength\" is 2"), std::string::npos);
  EXPECT_NE(misfit(kPoint, "{}").find("\"x\" is missing"), std::string::npos);
  // Of ways that were tried, the last is not the reason.
  EXPECT_NE(misfit(R"({"anyOf":[{"type":"null"},{"type":"string"}]})", "1").find("\"anyOf\""),
            std::string::npos);
}

TEST(SchemaCheck, TheSameValueInAnotherSpellingIsTheSame) {
  constexpr const char* kUnique = R"({"uniqueItems":true})";
  EXPECT_FALSE(fits(kUnique, "[1,2,1.0]"));
  EXPECT_FALSE(fits(kUnique, R"([{"a":1,"b":[2]},{"b":[2e0],"a":1}])"));
  EXPECT_TRUE(fits(kUnique, R"([1,"1",true,[1],{"a":1},{"a":"1"},9007199254740993,9007199254740992,
                               18446744073709551615,9223372036854775807,-1.5])"));
  EXPECT_TRUE(fits(R"({"enum":[1.0,{"a":[1]}]})", "1"));
  EXPECT_TRUE(fits(R"({"const":{"a":1,"b":2}})", R"({"b":2,"a":1.0})"));
  EXPECT_FALSE(fits(R"({"const":[1,2]})", "[1,2,3]"));
}

TEST(SchemaCheck, SchemasOfSchemasHoldAsDraft7Says) {
  const std::string branch =
      R"({"if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":0}})";
  EXPECT_TRUE(fits(branch, R"({"a":1,"b":1})"));
  EXPECT_FALSE(fits(branch, R"({"a":1})"));
  EXPECT_TRUE(fits(branch, "{}"));
  EXPECT_FALSE(fits(branch, R"({"c":1})"));
  const std::string one = R"({"oneOf":[{"type":"integer"},{"minimum":2},{"const":"x"}]})";
  EXPECT_TRUE(fits(one, "1"));
  EXPECT_TRUE(fits(one, "2.5"));
  EXPECT_FALSE(fits(one, "3"));
  EXPECT_FALSE(fits(one, "1.5"));
  const std::string tuple = R"({"items":[{"type":"string"},true],"additionalItems":false})";
  EXPECT_TRUE(fits(tuple, R"(["a",1])"));
  EXPECT_FALSE(fits(tuple, R"(["a",1,2])"));
  EXPECT_FALSE(fits(R"({"dependencies":{"a":["b"],"c":{"required":["d"]}}})", R"({"c":1})"));
  EXPECT_FALSE(fits(R"({"propertyNames":{"maxLength":1}})", R"({"ab":1})"));
  EXPECT_FALSE(fits(R"({"not":{"contains":{"multipleOf":2}}})", "[1,4]"));
  EXPECT_FALSE(fits(R"({"multipleOf":2})", "4.5"));
}

TEST(SchemaCheck, KeywordsThatSayNothingAreRefused) {
  EXPECT_NE(refused(R"({"minimum":"5"})").find("\"minimum\" must be a number"), std::string::npos);
  EXPECT_NE(refused(R"({"multipleOf":0})"), "");
  EXPECT_NE(refused(R"({"maxItems":-1})"), "");
  EXPECT_NE(refused(R"({"uniqueItems":1})"), "");
  EXPECT_NE(refused(R"({"required":[1]})"), "");
  EXPECT_NE(refused(R"({"enum":{}})"), "");
  EXPECT_NE(refused(R"({"dependencies":{"a":[1]}})"), "");
  // Also where one was stored before.
  for (const char* stored : {R"({"items":{"minimum":"5"}})", R"({"not":{"enum":1}})"})
    EXPECT_FALSE(answer_fits_schema(value(stored), "[1]")) << stored;
}

TEST(SchemaCheck, LongListsAreChecked) {
  EXPECT_TRUE(
      fits(R"({"items":{"type":"integer"},"uniqueItems":true})", "[" + numbers_to(20'000) + "]"));
  EXPECT_FALSE(fits(R"({"uniqueItems":true})", "[7," + numbers_to(20'000) + "]"));
  EXPECT_FALSE(fits(R"({"type":"array"})", std::string(100'000, '[')));
}

TEST(SchemaCheck, WhatTakesTooLongToCheckDoesNotCountAsFitting) {
  const std::string many = "[" + numbers_to(4096) + "]";
  const std::string schemas[] = {
      R"({"allOf":[)" + repeated(R"({"uniqueItems":true})", 2900) + "]}",
      R"({"items":{"enum":[)" + repeated("-1", 20'000) + ",true" + R"(]}})",
      R"({"not":{"contains":{"enum":[)" + repeated("-1", 20'000) + R"(]}}})",
      R"({"items":{"not":{"anyOf":[)" + repeated(R"({"type":"string"})", 2900) + "]}}}",
      R"({"items":{"allOf":[)" + repeated("true", 4000) + "]}}",
  };
  for (const std::string& schema : schemas) {
    // The first entry fits no value of the "enum", and the check must not end there.
    const bool is_enum = schema.starts_with(R"({"items":{"enum")");
    const std::string answer = is_enum ? "[" + repeated("true", 4096) + "]" : many;
    EXPECT_NE(misfit(schema, answer).find("takes too long"), std::string::npos)
        << schema.substr(0, 60);
  }
}

TEST(SchemaCheck, StepsAreSpentOnWhatACheckLooksAt) {
  const json::value list = value("[" + repeated("\"" + std::string(1000, 'x') + "\"", 100) + "]");
  const auto within = [&](const std::string& schema, std::int64_t steps) {
    const auto fit = value_fits_schema(value(schema), list, steps);
    EXPECT_TRUE(fit || fit.error().code == ErrorCode::too_large);
    return fit.has_value();
  };
  for (const std::string& schema : {std::string(R"({"items":{"minLength":1000}})"),
                                    R"({"items":{"const":")" + std::string(1000, 'x') + "\"}}",
                                    std::string(R"({"not":{"contains":{"maxLength":999}}})")}) {
    EXPECT_FALSE(within(schema, 3000)) << schema.substr(0, 40);
    EXPECT_TRUE(within(schema, 4000)) << schema.substr(0, 40);
  }
  EXPECT_FALSE(within(R"({"items":{"type":"string"}})", 150));
  EXPECT_TRUE(within(R"({"items":{"type":"string"}})", 250));
}

}  // namespace
}  // namespace ponder::jobs
