#include "engine/text/json_grammar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <sstream>

#include "tests/unit/text/json_texts.h"

namespace ponder::text {
namespace {

json::value schema_of(std::string_view text) {
  return parse_json(text).value();
}
Error refused(std::string_view schema) {
  const auto grammar = JsonGrammar::compile(schema_of(schema).as_object());
  EXPECT_FALSE(grammar) << schema;
  return grammar ? Error{} : grammar.error();
}

TEST(JsonGrammar, PropertyTextsOfRandomSchemasAreValid) {
  std::mt19937 random(5);
  int compiled = 0, texts = 0;
  for (int round = 0; round < 600; ++round) {
    json::value root = random_schema(random, 3);
    root.as_object()["$defs"] = json::object{
        {"tree", schema_of(R"({"type": "object", "properties": {"v": {"type": "integer"},
           "left": {"$ref": "#/$defs/tree"}, "rest": {"type": "array", "items":
           {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}}}, "required": ["v"]})")}};
    const auto grammar = JsonGrammar::compile(root.as_object());
    if (!grammar) {
      // The only reason: allOf, or bounds, that exclude each other.
      EXPECT_THAT(grammar.error().message, testing::HasSubstr("no JSON text fits"))
          << to_json(root);
      continue;
    }
    ++compiled;
    const JsonAutomaton automaton(*grammar, false);
    for (int i = 0; i < 6; ++i) {
      const auto text = random_text(automaton, random, 200);
      ASSERT_TRUE(text) << "a text that cannot be completed under " << to_json(root);
      EXPECT_TRUE(fits(root, *text)) << to_json(root) << "\n" << *text;
      ++texts;
    }
  }
  EXPECT_GT(compiled, 450);
  EXPECT_GT(texts, 2700);
}

TEST(JsonGrammar, CompactAndIndentedWritersAreTaken) {
  const json::value schema = schema_of(R"({"type": "object", "properties": {"a": {"type": "array",
    "items": {"type": "integer"}}, "b": {"type": "object", "properties": {"c": {"type": "string"}}},
    "d": {}}, "required": ["a"]})");
  EXPECT_TRUE(takes(schema, R"({"a":[1,-2,30],"b":{"c":"x"},"d":null})"));
  EXPECT_TRUE(takes(schema, R"({"a": [1, 2], "b": {}, "d": [{"e": 1.5e3}, "f"]})"));
  EXPECT_TRUE(
      takes(schema, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {\n    \"c\": \"x\"\n  }\n}"));
  EXPECT_FALSE(takes(schema, R"({"a":  [1]})"));
  EXPECT_FALSE(takes(schema, "{\n   \"a\": [1]\n}"));
  EXPECT_FALSE(takes(schema, R"({"a":[1]} )"));
  EXPECT_FALSE(takes(schema, R"({"b":{},"a":[1]})"));  // not the schema's order
  EXPECT_FALSE(takes(schema, R"({"b":{}})"));
  EXPECT_FALSE(takes(schema, R"({"a":[1],"z":1})"));
}

TEST(JsonGrammar, IntegersKeepTheirBounds) {
  std::mt19937 random(9);
  for (int round = 0; round < 200; ++round) {
    const auto low = static_cast<std::int64_t>(random() % 2400) - 1200;
    const auto high = low + static_cast<std::int64_t>(random() % (round % 2 ? 20 : 2400));
    const auto grammar =
        JsonGrammar::compile({{"type", "integer"}, {"minimum", low}, {"maximum", high}});
    ASSERT_TRUE(grammar);
    const JsonAutomaton automaton(*grammar, false);
    for (std::int64_t n = low - 30; n <= high + 30;
         n += 1 + static_cast<std::int64_t>(random() % 7)) {
      JsonAutomaton::State state = automaton.start(), after;
      bool taken = true;
      for (const char c : std::to_string(n)) {
        taken = taken && automaton.step(state, static_cast<std::uint8_t>(c), after);
        std::swap(state, after);
      }
      EXPECT_EQ(taken && automaton.complete(state), n >= low && n <= high)
          << n << " in " << low << ".." << high;
    }
  }
  const json::value positive = schema_of(R"({"type": "integer", "exclusiveMinimum": 0})");
  EXPECT_TRUE(takes(positive, "1"));
  EXPECT_TRUE(takes(positive, "999999999999999999"));
  EXPECT_FALSE(takes(positive, "0"));
  EXPECT_FALSE(takes(positive, "-1"));
  EXPECT_FALSE(takes(positive, "01"));
  EXPECT_FALSE(takes(schema_of(R"({"type": "integer"})"), "1.0"));
  EXPECT_FALSE(takes(schema_of(R"({"type": "integer"})"), "-0"));
  EXPECT_FALSE(takes(schema_of(R"({"type": "number", "minimum": 0})"), "-1.5"));
}

TEST(JsonGrammar, ANumberThatCannotGrowIsFinished) {
  const auto finished = [](std::string_view schema, std::string_view text) {
    const JsonAutomaton automaton(JsonGrammar::compile(schema_of(schema).as_object()).value(),
                                  false);
    JsonAutomaton::State state = automaton.start(), after;
    for (const char c : text) {
      EXPECT_TRUE(automaton.step(state, static_cast<std::uint8_t>(c), after));
      std::swap(state, after);
    }
    EXPECT_TRUE(automaton.complete(state));
    EXPECT_EQ(automaton.finished(state), next_bytes(automaton, state).empty());
    return automaton.finished(state);
  };
  EXPECT_TRUE(finished(R"({"type": "integer"})", "0"));
  EXPECT_TRUE(finished(R"({"type": "integer"})", "-123456789012345678"));
  EXPECT_TRUE(finished(R"({"type": "number"})", "1e10"));
  EXPECT_FALSE(finished(R"({"type": "integer"})", "12345678901234567"));
  EXPECT_FALSE(finished(R"({"type": "number"})", "0"));
  EXPECT_FALSE(finished(R"({"type": "number"})", "123456789012345"));
  EXPECT_FALSE(finished(R"({"type": "number"})", "0.123456789012345"));
}

TEST(JsonGrammar, AnIntegerHasNoPoint) {
  const json::value schema = schema_of(R"({"enum": [1.0, 2], "type": "integer"})");
  EXPECT_TRUE(takes(schema, "2"));
  EXPECT_FALSE(takes(schema, "1.0"));
  EXPECT_TRUE(takes(schema_of(R"({"enum": [1.0, 2], "type": "number"})"), "1.0"));
}

TEST(JsonGrammar, AValueOfAnEnumFitsAllThatIsSaidBesideIt) {
  const struct {
    const char* schema;
    const char* fits;
    const char* others;
  } cases[] = {
      {R"({"enum": [1, 16, -200], "minimum": -128, "exclusiveMaximum": 16})", "1", "16 -200"},
      {R"({"allOf": [{"enum": ["a", "bcd", "\u00e9\u00e9"]}, {"minLength": 2, "maxLength": 2}]})",
       "\"\u00e9\u00e9\"", R"("a" "bcd")"},
      {R"({"enum": [[], [1], [1, "x"]], "minItems": 1, "items": {"type": "integer"}})", "[1]",
       R"([] [1,"x"])"},
      {R"({"enum": [[1, 2], ["x", 2]], "prefixItems": [{"$ref": "#/$defs/word"}],
           "$defs": {"word": {"type": "string"}}})",
       R"(["x",2])", "[1,2]"},
      {R"({"enum": [{}, {"a": 1}, {"a": 1, "b": 2}, {"a": "x"}], "required": ["a"],
           "properties": {"a": {"anyOf": [{"const": 1}, {"const": 3}]}},
           "additionalProperties": false})",
       R"({"a":1})", R"({} {"a":1,"b":2} {"a":"x"})"},
      {R"({"enum": [5, "long enough"], "minLength": 4})", "5", R"("abc")"},
  };
  for (const auto& each : cases) {
    EXPECT_TRUE(takes(schema_of(each.schema), each.fits)) << each.schema;
    std::istringstream others(each.others);
    for (std::string text; others >> text;)
      EXPECT_FALSE(takes(schema_of(each.schema), text)) << each.schema << text;
  }
  EXPECT_FALSE(JsonGrammar::compile(
      schema_of(R"({"allOf": [{"const": 16}, {"type": "integer", "maximum": -128}]})")
          .as_object()));
}

TEST(JsonGrammar, StringsKeepTheirLengthInCharacters) {
  const json::value schema = schema_of(R"({"type": "string", "minLength": 2, "maxLength": 3})");
  EXPECT_FALSE(takes(schema, R"("a")"));
  EXPECT_TRUE(takes(schema, R"("aä")"));
  EXPECT_TRUE(takes(schema, "\"\xF0\x9F\x98\x80\\n\\ud83d\\ude00\""));
  EXPECT_FALSE(takes(schema, R"("abcd")"));
  EXPECT_FALSE(takes(schema, R"("\ud83d!")"));
  EXPECT_FALSE(takes(schema, "\"\xC0\x80!\""));
  EXPECT_FALSE(takes(schema, "\"a\nb\""));
}

TEST(JsonGrammar, OtherNamesAreNeitherListedOnesNorTwice) {
  const json::value schema = schema_of(
      R"({"type": "object", "properties": {"ab": {"type": "integer"}},
          "additionalProperties": {"type": "boolean"}})");
  EXPECT_TRUE(takes(schema, R"({"ab":1,"a":true,"abc":false})"));
  EXPECT_TRUE(takes(schema, R"({"a":true})"));
  EXPECT_FALSE(takes(schema, R"({"ab":true})"));
  EXPECT_FALSE(takes(schema, R"({"a":true,"ab":true})"));
  EXPECT_FALSE(takes(schema, R"({"\u0061b":true})"));
  EXPECT_FALSE(takes(schema, R"({"a":true,"a":true})"));
  EXPECT_TRUE(takes(schema_of(R"({"type": "object"})"), R"({"x":{"x":[{"x":1}]},"y":2})"));
}

TEST(JsonGrammar, AllOfMeansBoth) {
  const json::value schema = schema_of(R"({"allOf": [
    {"type": "object", "properties": {"a": {"type": ["integer", "string"]}}, "required": ["a"]},
    {"properties": {"a": {"type": ["string", "null"]}, "b": {"enum": [1, 12, "x"]}},
     "required": ["b"]}]})");
  EXPECT_TRUE(takes(schema, R"({"a":"s","b":12})"));
  EXPECT_FALSE(takes(schema, R"({"a":1,"b":12})"));
  EXPECT_FALSE(takes(schema, R"({"a":"s"})"));
  const json::value either = schema_of(R"({"type": "object", "properties": {"a": {}, "b": {}},
    "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})");
  EXPECT_TRUE(takes(either, R"({"b":1})"));
  EXPECT_FALSE(takes(either, R"({})"));
}

TEST(JsonGrammar, TuplesAndTheirRest) {
  const json::value schema = schema_of(R"({"prefixItems": [{"type": "integer"}, {"const": "x"}],
    "items": {"type": "boolean"}, "minItems": 2, "maxItems": 4})");
  EXPECT_TRUE(takes(schema, R"([1,"x"])"));
  EXPECT_TRUE(takes(schema, R"([1,"x",true,false])"));
  EXPECT_FALSE(takes(schema, R"([1])"));
  EXPECT_FALSE(takes(schema, R"([1,"x",true,false,true])"));
  EXPECT_FALSE(takes(schema, R"(["x",1])"));
}

TEST(JsonGrammar, NestingEndsBeforeReadersRefuseIt) {
  const auto grammar = JsonGrammar::compile(
      schema_of(R"({"type": "array", "items": {"$ref": "#"}, "minItems": 0})").as_object());
  ASSERT_TRUE(grammar);
  const JsonAutomaton automaton(*grammar, false);
  JsonAutomaton::State state = automaton.start(), after;
  int depth = 0;
  while (automaton.step(state, '[', after)) {
    std::swap(state, after);
    ASSERT_LT(++depth, 100);
  }
  EXPECT_GT(depth, 40);
  EXPECT_LT(depth, 64);
  EXPECT_EQ(next_bytes(automaton, state), std::vector<std::uint8_t>{']'});
}

TEST(JsonGrammar, BadSchemasAreRefusedWithASentence) {
  EXPECT_THAT(refused(R"({"type": "text"})").message, testing::HasSubstr("\"text\""));
  EXPECT_THAT(refused(R"({"$ref": "#/nowhere"})").message, testing::HasSubstr("#/nowhere"));
  EXPECT_THAT(refused(R"({"$ref": "http://x/y"})").message, testing::HasSubstr("another document"));
  EXPECT_THAT(refused(R"({"properties": 3})").message, testing::HasSubstr("properties"));
  EXPECT_THAT(refused(R"({"minItems": -1})").message, testing::HasSubstr("minItems"));
  EXPECT_THAT(refused(R"({"anyOf": []})").message, testing::HasSubstr("anyOf"));
  EXPECT_THAT(refused(R"({"enum": []})").message, testing::HasSubstr("no JSON text fits"));
  EXPECT_THAT(refused(R"({"$ref": "#"})").message, testing::HasSubstr("no JSON text fits"));
  EXPECT_THAT(refused(R"({"properties": {"a": {"$ref": "#"}}, "required": ["a"]})").message,
              testing::HasSubstr("no JSON text fits"));
  EXPECT_EQ(refused(R"({"enum": []})").param, "schema");
}

TEST(JsonGrammar, KeywordsThatCannotBeBoundAreLeftAlone) {
  EXPECT_TRUE(
      takes(schema_of(R"({"type": "string", "pattern": "^a", "format": "date"})"), R"("b")"));
  EXPECT_TRUE(takes(schema_of(R"({"not": {"type": "null"}, "type": "null"})"), "null"));
}

TEST(JsonGrammar, HugeSchemasEndInAnAnswerNotInMemory) {
  // Each level multiplies the alternatives of the one below.
  std::string nested = R"({"type": "string"})";
  for (int i = 0; i < 14; ++i)
    nested = R"({"allOf": [{"anyOf": [)" + nested +
             R"(, {"type": "null"}]}, {"anyOf": [{"minLength": )" + std::to_string(i) +
             R"(}, {"maxLength": )" + std::to_string(i) + R"(}]}]})";
  const std::clock_t begin = std::clock();
  static_cast<void>(JsonGrammar::compile(schema_of(nested).as_object()));
  // A reference that grows each time round.
  static_cast<void>(JsonGrammar::compile(
      schema_of(R"({"$defs": {"a": {"properties": {"x": {"allOf": [{"$ref": "#/$defs/a"},
        {"properties": {"y": {"$ref": "#/$defs/b"}}}]}}}, "b": {"properties": {"x": {"allOf":
        [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}]}}}}, "$ref": "#/$defs/a"})")
          .as_object()));
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20.0);
}

TEST(JsonGrammar, ASmallSchemaCannotAskForMuchWork) {
  // Each of many properties multiplies out a part whose alternatives are big.
  json::array alternatives;
  const json::array names{std::string(50'000, 'x'), std::string(50'000, 'y')};
  for (int i = 0; i < 200; ++i)
    alternatives.push_back(json::object{{"minLength", i}});
  json::object properties;
  for (int i = 0; i < 1000; ++i)
    properties["p" + std::to_string(i)] = json::object{{"$ref", "#/$defs/a"}, {"maxLength", i}};
  const json::object many{
      {"$defs", json::object{{"a", json::object{{"enum", names}, {"anyOf", alternatives}}}}},
      {"properties", properties}};
  EXPECT_THAT(refused(to_json(many)).message, testing::HasSubstr("too many alternatives"));

  // The same list of names over and over.
  json::array required, all;
  for (int i = 0; i < 10'000; ++i)
    required.push_back(json::value("n" + std::to_string(i)));
  for (int i = 0; i < 4000; ++i)
    all.push_back(json::object{{"$ref", "#/$defs/a"}});
  const json::object again{{"$defs", json::object{{"a", json::object{{"required", required}}}}},
                           {"allOf", all}};
  EXPECT_THAT(refused(to_json(again)).message, testing::HasSubstr("too many alternatives"));
}

TEST(JsonGrammar, WhatOnlyDescribesMakesNoAlternatives) {
  json::array any;
  for (int i = 0; i < 200; ++i)
    any.push_back(json::object{{"type", "integer"}, {"title", std::to_string(i)}});
  EXPECT_TRUE(takes(json::object{{"items", json::object{{"anyOf", any}}}}, "[1]"));
  const auto grammar = JsonGrammar::compile({{"anyOf", any}});
  ASSERT_TRUE(grammar);
  EXPECT_EQ(JsonAutomaton(*grammar, false).start().size(), 1u);
}

/// 200 objects that begin alike, each with a value of 200 kinds.
json::object ambiguous_schema() {
  json::array kinds, objects;
  for (int i = 0; i < 200; ++i) {
    kinds.push_back(json::object{{"type", "string"}, {"minLength", i}});
    objects.push_back(schema_of(R"({"type": "object", "required": ["a"], "properties":
        {"a": {"$ref": "#/$defs/s"}, "b)" +
                                std::to_string(i) + R"(": {"type": "null"}}})"));
  }
  return {{"$defs", json::object{{"s", json::object{{"anyOf", kinds}}}}}, {"anyOf", objects}};
}

TEST(JsonGrammar, TextsOfVeryManyChoicesAreStillWhole) {
  std::mt19937 random(3);
  const json::object schema = ambiguous_schema();
  const auto grammar = JsonGrammar::compile(schema);
  ASSERT_TRUE(grammar);
  const JsonAutomaton automaton(*grammar, false);
  for (int i = 0; i < 3; ++i) {
    const auto text = random_text(automaton, random, 100);
    ASSERT_TRUE(text);
    EXPECT_TRUE(parse_json(*text)) << *text;
  }
  JsonAutomaton::State state = automaton.start(), after;
  for (const char c : std::string_view(R"({"a":")")) {
    ASSERT_TRUE(automaton.step(state, static_cast<std::uint8_t>(c), after));
    std::swap(state, after);
  }
  EXPECT_LE(state.size(), 512u);
  const std::uint64_t before = automaton.work();
  automaton.step(state, 'x', after);
  EXPECT_LE(automaton.work() - before, 1u << 16);
}

TEST(JsonGrammar, RandomBytesNeverBreakIt) {
  std::mt19937 random(11);
  const std::string alphabet = "{}[]\",:\\u0123456789abdefn-+.eE \n\t\xC3\xA4\xF0\x9F";
  for (int round = 0; round < 3000; ++round) {
    const json::value schema = random_schema(random, 2);
    json::object root = schema.as_object();
    root["$defs"] = json::object{{"tree", true}};
    const auto grammar = JsonGrammar::compile(root);
    if (!grammar) continue;
    const JsonAutomaton automaton(*grammar, round % 2 == 0);
    JsonAutomaton::State state = automaton.start(), after;
    for (int i = 0; i < 200; ++i) {
      if (!automaton.step(state, static_cast<std::uint8_t>(alphabet[random() % alphabet.size()]),
                          after))
        continue;
      std::swap(state, after);
    }
    EXPECT_FALSE(state.empty());
  }
}

TEST(JsonGrammar, StatesAreForgottenWithoutALoss) {
  const auto grammar = JsonGrammar::compile({{"type", "object"}});
  JsonAutomaton automaton(*grammar, false);
  JsonAutomaton::State state = automaton.start(), after;
  const auto read = [&](const std::string& text) {
    for (const char c : text) {
      if (!automaton.step(state, static_cast<std::uint8_t>(c), after)) return false;
      std::swap(state, after);
    }
    return true;
  };
  ASSERT_TRUE(read(R"({"first":[0)"));
  bool tidied = false;
  for (int i = 0; i < 50000; ++i) {
    ASSERT_TRUE(read(R"(,{"k":[[1]]})"));
    tidied = automaton.tidy(state) || tidied;
  }
  ASSERT_TRUE(read("]"));
  for (int i = 0; i < 70000; ++i) {
    ASSERT_TRUE(read(",\"m" + std::to_string(i) + "\":1"));
    if (i % 1000 == 0) tidied = automaton.tidy(state) || tidied;
    if (i > 300) break;
  }
  EXPECT_FALSE(read(R"(,"first":1)") && automaton.complete(state));
}

}  // namespace
}  // namespace ponder::text
