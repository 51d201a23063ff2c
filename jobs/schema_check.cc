#include "jobs/schema_check.h"

// Without it the library ends the process on a schema that it cannot read.
#define VALIJSON_USE_EXCEPTIONS 1

#include <fmt/core.h>

#include <array>
#include <valijson/adapters/boost_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>

#include "jobs/schema_fit.h"

namespace ponder::jobs {
namespace {

constexpr std::size_t kMaxSchemaBytes = 64 << 10;
constexpr int kMaxDepth = 32;
constexpr int kMaxNodes = 4096;                    // after references are written out
constexpr std::size_t kMaxWrittenOut = 256 << 10;  // bytes then
constexpr std::size_t kMaxNesting = 64;            // of the JSON text then
constexpr std::size_t kMaxAnswerBytes = 1 << 20;

/// A keyword's value: is it a schema, or does it hold some?
enum class Holds { value, schema, schema_or_list, list, map, map_of_schema_or_list };

constexpr std::array<std::pair<std::string_view, Holds>, 31> kKeywords{{
    {"type", Holds::value},
    {"enum", Holds::value},
    {"const", Holds::value},
    {"required", Holds::value},
    {"minimum", Holds::value},
    {"maximum", Holds::value},
    {"exclusiveMinimum", Holds::value},
    {"exclusiveMaximum", Holds::value},
    {"multipleOf", Holds::value},
    {"minLength", Holds::value},
    {"maxLength", Holds::value},
    {"minItems", Holds::value},
    {"maxItems", Holds::value},
    {"uniqueItems", Holds::value},
    {"minProperties", Holds::value},
    {"maxProperties", Holds::value},
    {"properties", Holds::map},
    {"additionalProperties", Holds::schema},
    {"propertyNames", Holds::schema},
    {"items", Holds::schema_or_list},
    {"additionalItems", Holds::schema},
    {"contains", Holds::schema},
    {"not", Holds::schema},
    {"if", Holds::schema},
    {"then", Holds::schema},
    {"else", Holds::schema},
    {"allOf", Holds::list},
    {"anyOf", Holds::list},
    {"oneOf", Holds::list},
    {"dependencies", Holds::map_of_schema_or_list},
    {"$ref", Holds::value},
}};

constexpr std::array<std::string_view, 14> kUnsupported{
    "pattern",          "patternProperties", "prefixItems",           "dependentRequired",
    "dependentSchemas", "unevaluatedItems",  "unevaluatedProperties", "minContains",
    "maxContains",      "$dynamicRef",       "$recursiveRef",         "$anchor",
    "extends",          "disallow"};

tl::unexpected<Error> bad(std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = "schema";
  return fail(std::move(error));
}

class Compiler {
 public:
  explicit Compiler(const json::value& root) : root_(root) {}

  Result<json::value> schema(const json::value& node, int depth) {
    if (depth > kMaxDepth)
      return bad(fmt::format("the schema is nested deeper than {} levels, or refers to itself",
                             kMaxDepth));
    if (++nodes_ > kMaxNodes)
      return bad(fmt::format("the schema has more than {} parts", kMaxNodes));
    if (node.is_bool()) return node;
    if (!node.is_object()) return bad("a schema must be an object, true or false");
    const json::object& in = node.as_object();
    for (const std::string_view word : kUnsupported)
      if (in.contains(word))
        return bad(
            fmt::format("the schema uses \"{}\", which is not supported; leave it out and "
                        "say it in the task",
                        word));
    if (const json::value* ref = in.if_contains("$ref")) return reference(*ref, depth);
    json::object out;
    for (const auto& [word, holds] : kKeywords) {
      const json::value* value = in.if_contains(word);
      if (!value) continue;
      TRY(out[word], held(*value, holds, word, depth + 1));
    }
    return json::value(std::move(out));
  }

 private:
  Result<json::value> reference(const json::value& ref, int depth) {
    const std::string_view text = ref.is_string() ? std::string_view(ref.as_string()) : "";
    if (!text.starts_with('#') || (text.size() > 1 && text[1] != '/'))
      return bad("the schema refers to another document; only \"#/...\" is supported");
    boost::system::error_code ec;
    const json::value* target = root_.find_pointer(json::string_view(text.substr(1)), ec);
    if (ec || !target)
      return bad(
          fmt::format("the schema refers to \"{}\", which is not in it", text.substr(0, 80)));
    return schema(*target, depth + 1);
  }

  Result<json::value> list(const json::value& value, std::string_view word, int depth) {
    if (!value.is_array()) return bad(fmt::format("\"{}\" must be a list of schemas", word));
    json::array out;
    for (const json::value& entry : value.as_array()) {
      TRY(json::value compiled, schema(entry, depth));
      out.push_back(std::move(compiled));
    }
    return json::value(std::move(out));
  }

  Result<json::value> held(const json::value& value, Holds holds, std::string_view word,
                           int depth) {
    switch (holds) {
      case Holds::value:
        TRY_VOID(check_keyword(word, value));
        TRY_VOID(write_out(to_json(value).size()));
        return value;
      case Holds::schema:
        return schema(value, depth);
      case Holds::list:
        return list(value, word, depth);
      case Holds::schema_or_list:
        return value.is_array() ? list(value, word, depth) : schema(value, depth);
      case Holds::map:
      case Holds::map_of_schema_or_list:
        break;
    }
    if (!value.is_object()) return bad(fmt::format("\"{}\" must be an object", word));
    json::object out;
    for (const auto& member : value.as_object()) {
      TRY_VOID(write_out(member.key().size()));
      if (holds == Holds::map_of_schema_or_list && member.value().is_array()) {
        TRY_VOID(check_keyword("required", member.value()));
        TRY_VOID(write_out(to_json(member.value()).size()));
        out[member.key()] = member.value();
        continue;
      }
      TRY(out[member.key()], schema(member.value(), depth));
    }
    return json::value(std::move(out));
  }

  Result<void> write_out(std::size_t bytes) {
    written_ += bytes;
    if (written_ <= kMaxWrittenOut) return {};
    return bad(fmt::format("the schema has more than {} bytes once its references are written out",
                           kMaxWrittenOut));
  }

  const json::value& root_;
  int nodes_ = 0;
  std::size_t written_ = 0;  // bytes of names and values
};

/// The library throws on schemas that nothing can be checked against. It only reads them: its own
/// check compares each with each, and copies texts to compare them.
Result<void> read(const json::value& compiled) {
  valijson::Schema schema;
  try {
    valijson::SchemaParser parser;
    parser.populateSchema(valijson::adapters::BoostJsonAdapter(compiled), schema);
  } catch (const std::exception& e) {
    return bad(fmt::format("the schema cannot be used: {}", e.what()));
  }
  return {};
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}
}  // namespace

Result<json::value> compile_schema(const json::value& schema) {
  if (!schema.is_object()) return bad("\"schema\" must be a JSON Schema object");
  if (to_json(schema).size() > kMaxSchemaBytes)
    return bad(fmt::format("the schema has more than {} bytes", kMaxSchemaBytes));
  TRY(json::value compiled, Compiler(schema).schema(schema, 0));
  if (!parse_json(to_json(compiled), {SIZE_MAX, kMaxNesting}))
    return bad(fmt::format("the schema is nested deeper than {} brackets", kMaxNesting));
  TRY_VOID(read(compiled));
  return compiled;
}

std::string_view without_fence(std::string_view answer) {
  constexpr std::string_view kFence = "```";
  const std::string_view text = trimmed(answer);
  const std::size_t open = text.find(kFence);
  if (open == std::string_view::npos) return text;
  const std::size_t line_end = text.find('\n', open);
  if (line_end == std::string_view::npos) return text;
  const std::string_view language =
      trimmed(text.substr(open + kFence.size(), line_end - open - kFence.size()));
  if (!language.empty() && language != "json" && language != "JSON") return text;
  const std::size_t close = text.find(kFence, line_end);
  if (close == std::string_view::npos) return text;
  if (text.find(kFence, close + kFence.size()) != std::string_view::npos) return text;
  return trimmed(text.substr(line_end, close - line_end));
}

Result<void> answer_fits_schema(const json::value& compiled, std::string_view answer) {
  auto value = parse_json(trimmed(answer), {kMaxAnswerBytes, 64});
  if (!value) value = parse_json(without_fence(answer), {kMaxAnswerBytes, 64});
  if (!value)
    return fail(ErrorCode::bad_request,
                fmt::format("the answer is not JSON: {}", value.error().message));
  // One that was stored may be older than what is asked of a schema now.
  TRY(const json::value schema, Compiler(compiled).schema(compiled, 0));
  const Result<void> fits = value_fits_schema(schema, *value);
  if (fits) return {};
  return fail(fits.error().code,
              fits.error().code == ErrorCode::too_large
                  ? "the answer does not count as fitting: " + fits.error().message
                  : "the answer does not fit the schema: " + fits.error().message);
}

}  // namespace ponder::jobs
