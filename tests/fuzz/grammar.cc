// A JSON schema from a request as a grammar, and a walk through what it allows: whatever is chosen
// ends in a JSON text, and where the schema says only what a grammar bounds, in one that fits. Half
// of the inputs are schemas as text, the others choose a schema part by part.
#include "engine/base/check.h"
#include "engine/text/json_constraint.h"
#include "jobs/schema_check.h"
#include "tests/fuzz/choices.h"
#include "tests/unit/text/golden_files.h"

using namespace ponder;
using fuzz::Choices;
using text::JsonAutomaton;
using text::JsonConstraint;

namespace {

constexpr const char* kNames[] = {"a", "b", "ab", "name", "gr\303\266\303\237e", "x y", "q\"", ""};

json::value any_value(Choices& choose, int depth) {
  switch (choose.below(depth > 0 ? 8 : 6)) {
    case 0:
      return nullptr;
    case 1:
      return choose.yes();
    case 2:
      return static_cast<std::int64_t>(choose.byte()) - 100;
    case 3:
      return json::value(kNames[choose.below(std::size(kNames))]);
    case 4:
      return static_cast<double>(choose.byte()) / 8 - 3;
    case 5:
      return 1.0;
    case 6: {
      json::array list;
      for (std::size_t n = choose.below(3); n > 0; --n)
        list.push_back(any_value(choose, depth - 1));
      return list;
    }
    default: {
      json::object object;
      for (std::size_t n = choose.below(3); n > 0; --n)
        object[kNames[choose.below(std::size(kNames))]] = any_value(choose, depth - 1);
      return object;
    }
  }
}

std::int64_t any_bound(Choices& choose) {
  constexpr std::int64_t kScales[] = {1, 1, 10, 1000, 1'000'000'007};
  return (static_cast<std::int64_t>(choose.byte()) - 128) * kScales[choose.below(5)] +
         choose.byte() % 3;
}

/// A schema of keywords that a grammar bounds, as docs/engine.md lists them.
json::value any_schema(Choices& choose, int depth) {
  const auto inner = [&] { return any_schema(choose, depth - 1); };
  json::object schema;
  switch (choose.below(depth > 0 ? 14 : 8)) {
    case 0:
      return json::object{{"type", "boolean"}};
    case 1:
      return json::object{{"type", json::array{"null", "number"}}};
    case 2:
      schema["type"] = "integer";
      if (choose.yes()) schema["minimum"] = any_bound(choose);
      if (choose.yes()) schema["maximum"] = any_bound(choose);
      if (choose.yes()) schema["exclusiveMinimum"] = any_bound(choose);
      if (choose.yes()) schema["exclusiveMaximum"] = any_bound(choose);
      return schema;
    case 3:
      schema["type"] = "string";
      if (choose.yes()) schema["minLength"] = choose.below(5);
      if (choose.yes()) schema["maxLength"] = choose.below(9);
      return schema;
    case 4: {
      json::array values;
      for (std::size_t n = 1 + choose.below(5); n > 0; --n)
        values.push_back(any_value(choose, 2));
      schema["enum"] = std::move(values);
      if (choose.yes()) schema["type"] = json::array{"integer", "string", "object", "array"};
      return schema;
    }
    case 5:
      return json::object{{"const", any_value(choose, 2)}};
    case 6:
      return choose.yes();
    case 7:
      return json::object{{"$ref", "#/$defs/leaf"}};
    case 8:
    case 9: {
      json::object properties;
      json::array required;
      for (std::size_t n = choose.below(5); n > 0; --n) {
        const std::string name = kNames[choose.below(std::size(kNames))];
        properties[name] = inner();
        if (choose.yes() &&
            std::find(required.begin(), required.end(), json::value(name)) == required.end())
          required.emplace_back(name);
      }
      schema["type"] = "object";
      if (!properties.empty() && choose.below(4) > 0) schema["properties"] = std::move(properties);
      if (!required.empty()) schema["required"] = std::move(required);
      if (choose.yes()) schema["additionalProperties"] = inner();
      return schema;
    }
    case 10: {
      schema["type"] = "array";
      const bool tuple = choose.yes();
      if (tuple) {
        json::array items;
        for (std::size_t n = 1 + choose.below(3); n > 0; --n)
          items.push_back(inner());
        schema["items"] = std::move(items);
        if (choose.yes()) schema["additionalItems"] = inner();
      } else if (choose.below(4) > 0) {
        schema["items"] = inner();
      }
      if (choose.yes()) schema["minItems"] = choose.below(4);
      if (choose.yes()) schema["maxItems"] = choose.below(6);
      return schema;
    }
    case 11:
      return json::object{{"anyOf", json::array{inner(), inner()}}};
    case 12:
      return json::object{{"allOf", json::array{inner(), inner()}}};
    default:
      return json::object{{"$ref", "#/$defs/tree"}};
  }
}

/// Whether the schema says something of which a grammar bounds only a part, or nothing.
bool says_more(const json::value& value) {
  static constexpr std::string_view kMore[] = {
      "multipleOf",       "uniqueItems", "minProperties", "maxProperties",
      "propertyNames",    "contains",    "not",           "if",
      "dependencies",     "oneOf",       "minimum",       "exclusiveMinimum",
      "exclusiveMaximum", "maximum"};
  if (const json::array* list = value.if_array())
    return std::any_of(list->begin(), list->end(), says_more);
  const json::object* object = value.if_object();
  return object && std::any_of(object->begin(), object->end(), [](const auto& member) {
           return std::find(std::begin(kMore), std::end(kMore), std::string_view(member.key())) !=
                      std::end(kMore) ||
                  says_more(member.value());
         });
}

/// A text that the grammar allows, some tokens first and then bytes; cut where it grows too long.
struct Walk {
  std::string text;
  bool whole = false;
};

Walk walk(const std::shared_ptr<const text::JsonGrammar>& grammar, Choices& choose,
          std::size_t most) {
  const text::Tokenizer& tokenizer = text::pebble_tokenizer();
  const bool after_tag = choose.yes();
  JsonAutomaton automaton(grammar, after_tag);
  JsonAutomaton::State state = automaton.start(), after;
  Walk out;
  const auto take = [&](std::uint8_t byte) {
    CHECK_MSG(automaton.step(state, byte, after), "a byte of an allowed token is refused");
    std::swap(state, after);
    out.text += static_cast<char>(byte);
  };

  JsonConstraint constraint(tokenizer, grammar, after_tag);
  for (std::size_t tokens = choose.byte() / 64; tokens > 0; --tokens) {
    const std::vector<text::TokenId> allowed = constraint.allowed(constraint.state());
    CHECK_MSG(!allowed.empty(), "no token may follow");
    const text::TokenId id = allowed[(choose.byte() * 256u + choose.byte()) % allowed.size()];
    if (tokenizer.is_end(id)) {
      CHECK(automaton.complete(state));
      out.whole = true;
      return out;
    }
    CHECK_MSG(constraint.push(id), "an allowed token is refused");
    for (const char c : tokenizer.bytes_of(id))
      take(static_cast<std::uint8_t>(c));
    CHECK(constraint.complete() == automaton.complete(state));
  }

  // Bytes as the input says; when it has ended, what closes first.
  while (out.text.size() < most) {
    const auto may = [&](char c) {
      return automaton.step(state, static_cast<std::uint8_t>(c), after);
    };
    out.whole = automaton.complete(state);
    if (out.whole && (choose.empty() || choose.yes())) return out;
    const auto wished = static_cast<char>(choose.byte());
    if (!choose.empty() && may(wished)) {
      take(static_cast<std::uint8_t>(wished));
      continue;
    }
    const bool in_string = may('\x7f');  // where all that closes is text, but for the quote
    const std::string_view closing =
        in_string && may('"') ? "\"" : "}]\"0n1tfa,:- \n-23456789bcdeu\\";
    auto found = std::find_if(closing.begin(), closing.end(), may);
    if (found != closing.end()) {
      take(static_cast<std::uint8_t>(*found));
      continue;
    }
    int byte = 0;
    while (byte < 256 && !may(static_cast<char>(byte)))
      ++byte;
    if (byte == 256) {
      CHECK_MSG(out.whole && automaton.finished(state), "a text that cannot be completed");
      return out;
    }
    take(static_cast<std::uint8_t>(byte));
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choose(std::string_view(reinterpret_cast<const char*>(data), size));
  json::object schema;
  const bool as_text = choose.yes();
  if (as_text) {
    const std::size_t length = choose.byte() * 16u;
    auto read = parse_json_object(choose.text(length));
    if (!read) return 0;
    schema = std::move(*read);
  } else {
    json::value root = any_schema(choose, 3);
    if (!root.is_object()) return 0;
    schema = std::move(root.as_object());
    json::object tree{{"type", "object"}, {"properties", json::object{}}};
    tree["properties"].as_object()["v"] = any_schema(choose, 0);
    tree["properties"].as_object()["rest"] =
        json::object{{"type", "array"}, {"items", json::object{{"$ref", "#/$defs/tree"}}}};
    schema["$defs"] = json::object{{"leaf", json::object{{"type", "null"}}}, {"tree", tree}};
  }

  const auto grammar = text::JsonGrammar::compile(schema);
  if (!grammar) {
    CHECK(grammar.error().param == "schema" && !grammar.error().message.empty());
    return 0;
  }
  const Walk made = walk(*grammar, choose, as_text ? 2000 : 200'000);
  CHECK_MSG(made.whole || as_text, "a text without an end");
  if (!made.whole) return 0;
  CHECK_MSG(parse_json(made.text).has_value(), made.text);
  if (as_text && says_more(schema)) return 0;
  const auto check = jobs::compile_schema(schema);
  if (!check) return 0;  // it says what neither knows, or refers to itself
  const auto fits = jobs::answer_fits_schema(*check, made.text);
  CHECK_MSG(fits, to_json(schema) + "\n" + made.text + "\n" + fits.error().message);
  return 0;
}
