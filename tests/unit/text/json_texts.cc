#include "tests/unit/text/json_texts.h"

// Without it the library ends the process on a schema that it cannot read.
#define VALIJSON_USE_EXCEPTIONS 1

#include <gtest/gtest.h>

#include <algorithm>
#include <valijson/adapters/boost_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validator.hpp>

namespace ponder::text {
namespace {

std::string random_name(std::mt19937& random) {
  static const std::vector<std::string> names{"a",     "b",   "ab",      "name",
                                              "größe", "x y", "q\"uote", ""};
  return names[random() % names.size()];
}

json::value random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<std::int64_t>(random() % 300) - 100;
    case 3:
      return json::value(random_name(random));
    case 4:
      return 0.5;
    case 5: {
      json::array list;
      for (unsigned n = random() % 3; n > 0; --n)
        list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      json::object object;
      for (unsigned n = random() % 3; n > 0; --n)
        object[random_name(random)] = random_value(random, depth - 1);
      return object;
    }
  }
}

json::object random_object(std::mt19937& random, int depth) {
  json::object schema{{"type", "object"}};
  json::object properties;
  json::array required;
  for (unsigned n = random() % 5; n > 0; --n) {
    const std::string name = random_name(random);
    properties[name] = random_schema(random, depth - 1);
    if (random() % 2 == 0 &&
        std::find(required.begin(), required.end(), json::value(name)) == required.end())
      required.emplace_back(name);
  }
  if (random() % 4 != 0) schema["properties"] = std::move(properties);
  if (schema.contains("properties") && !required.empty()) schema["required"] = std::move(required);
  if (random() % 3 == 0)
    schema["additionalProperties"] =
        random() % 2 == 0 ? json::value(random() % 2 == 0) : random_schema(random, depth - 1);
  return schema;
}

json::object random_array(std::mt19937& random, int depth) {
  json::object schema{{"type", "array"}};
  if (random() % 4 != 0) schema["items"] = random_schema(random, depth - 1);
  const unsigned least = random() % 3;
  if (random() % 2 == 0) schema["minItems"] = least;
  if (random() % 2 == 0) schema["maxItems"] = least + random() % 3;
  return schema;
}

}  // namespace

json::value random_schema(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 13 : 7)) {
    case 0:
      return json::object{{"type", "boolean"}};
    case 1:
      return json::object{{"type", json::array{"null", "number"}}};
    case 2: {
      json::object schema{{"type", "integer"}};
      const std::int64_t low = static_cast<std::int64_t>(random() % 3000) - 1500;
      if (random() % 2 == 0) schema["minimum"] = low;
      if (random() % 2 == 0) schema["maximum"] = low + static_cast<std::int64_t>(random() % 2000);
      if (random() % 4 == 0) schema["exclusiveMaximum"] = low + 2000;
      return schema;
    }
    case 3: {
      json::object schema{{"type", "string"}};
      const unsigned least = random() % 4;
      if (random() % 2 == 0) schema["minLength"] = least;
      if (random() % 2 == 0) schema["maxLength"] = least + random() % 4;
      return schema;
    }
    case 4: {
      json::array values;
      for (unsigned n = 1 + random() % 5; n > 0; --n)
        values.push_back(random_value(random, 2));
      return json::object{{"enum", std::move(values)}};
    }
    case 5:
      return json::object{{"const", random_value(random, 2)}};
    case 6:
      return json::object{{"type", "number"}};
    case 7:
    case 8:
      return random_object(random, depth);
    case 9:
      return random_array(random, depth);
    case 10:
      return json::object{{"anyOf", json::array{random_schema(random, depth - 1),
                                                random_schema(random, depth - 1)}}};
    case 11:
      return json::object{{"allOf", json::array{random_object(random, depth - 1),
                                                random_object(random, depth - 1)}}};
    default:
      return json::object{{"$ref", "#/$defs/tree"}};
  }
}

bool fits(const json::value& schema, const std::string& text) {
  const Result<json::value> value = parse_json(text);
  if (!value) {
    ADD_FAILURE() << value.error().message << ": " << text;
    return false;
  }
  valijson::Schema compiled;
  valijson::SchemaParser parser(valijson::SchemaParser::kDraft7);
  // Through text: it takes no unsigned numbers.
  const json::value read_again = parse_json(to_json(schema)).value();
  parser.populateSchema(valijson::adapters::BoostJsonAdapter(read_again), compiled);
  valijson::Validator validator(valijson::Validator::kStrongTypes);
  return validator.validate(compiled, valijson::adapters::BoostJsonAdapter(*value), nullptr);
}

std::vector<std::uint8_t> next_bytes(const JsonAutomaton& automaton,
                                     const JsonAutomaton::State& state) {
  std::vector<std::uint8_t> bytes;
  JsonAutomaton::State after;
  for (int byte = 0; byte < 256; ++byte)
    if (automaton.step(state, static_cast<std::uint8_t>(byte), after))
      bytes.push_back(static_cast<std::uint8_t>(byte));
  return bytes;
}

std::optional<std::string> random_text(const JsonAutomaton& automaton, std::mt19937& random,
                                       std::size_t hurry) {
  std::string text;
  JsonAutomaton::State state = automaton.start(), after;
  while (true) {
    std::vector<std::uint8_t> bytes = next_bytes(automaton, state);
    const bool whole = automaton.complete(state);
    if (bytes.empty()) return whole ? std::optional(text) : std::nullopt;
    if (whole && random() % 2 == 0) return text;
    std::uint8_t byte = bytes[random() % bytes.size()];
    if (text.size() > hurry || random() % 3 == 0) {
      // Plain letters where they may come, else what closes.
      for (const char wanted : std::string(text.size() > hurry ? "}]\"0n1" : "\"}],a{[0"))
        if (std::find(bytes.begin(), bytes.end(), static_cast<std::uint8_t>(wanted)) !=
            bytes.end()) {
          byte = static_cast<std::uint8_t>(wanted);
          break;
        }
    }
    EXPECT_TRUE(automaton.step(state, byte, after));
    std::swap(state, after);
    text += static_cast<char>(byte);
    if (text.size() > hurry + 20000) return std::nullopt;
  }
}

bool takes(const json::value& schema, const std::string& text) {
  const auto grammar = JsonGrammar::compile(schema.as_object());
  EXPECT_TRUE(grammar) << (grammar ? "" : grammar.error().message);
  if (!grammar) return false;
  const JsonAutomaton automaton(*grammar, false);
  JsonAutomaton::State state = automaton.start(), after;
  for (const char c : text) {
    if (!automaton.step(state, static_cast<std::uint8_t>(c), after)) return false;
    std::swap(state, after);
  }
  return automaton.complete(state);
}

}  // namespace ponder::text
