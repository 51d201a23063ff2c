#include "engine/text/json_shapes.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "engine/base/check.h"
#include "engine/text/json_schema_fits.h"
#include "engine/text/json_schema_merge.h"

namespace ponder::text {
namespace {

constexpr std::size_t kMaxSchemaBytes = 256 << 10;
constexpr int kMaxSchemaDepth = 64;
constexpr std::size_t kMaxNodes = 4096;
constexpr std::size_t kMaxParts = 65536;  // members, items and literals of all nodes together
constexpr std::int64_t kMostLength = std::int64_t{1} << 23;
constexpr int kNever = 1 << 20;  // the height of what cannot be completed

using Kind = JsonShape::Kind;

int nesting(const json::value& value, int limit) {
  int most = 0;
  if (limit == 0) return 0;
  if (const json::object* o = value.if_object())
    for (const auto& [key, member] : *o)
      most = std::max(most, nesting(member, limit - 1));
  if (const json::array* a = value.if_array())
    for (const json::value& item : *a)
      most = std::max(most, nesting(item, limit - 1));
  return value.is_structured() ? most + 1 : 0;
}

Result<std::int64_t> length_of(const json::object& schema, std::string_view key,
                               std::int64_t fallback) {
  const json::value* value = schema.if_contains(key);
  if (!value) return fallback;
  const double n = value->is_number() ? value->to_number<double>() : -1;
  if (!(n >= 0) || n != std::floor(n))
    return bad_schema(fmt::format("\"{}\" in the schema must be a whole number", key));
  return n > static_cast<double>(kMostLength) ? kMostLength : static_cast<std::int64_t>(n);
}

class Normalizer {
 public:
  explicit Normalizer(const json::object& root) : root_(root) {}

  Result<std::vector<JsonNode>> all() {
    TRY(const int root, node_of(root_));
    CHECK(root == 0);
    // Nodes are found while others are read; a work list, since schemas may be deep.
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      TRY(JsonNode node, read(*sources_[i]));
      nodes_[i] = std::move(node);
    }
    find_heights();
    if (nodes_[0].height > kMaxJsonDepth)
      return bad_schema(
          nodes_[0].height >= kNever
              ? "no JSON text fits the schema"
              : fmt::format("the schema needs texts nested deeper than {} levels", kMaxJsonDepth));
    for (JsonNode& node : nodes_)
      prune(node);
    return std::move(nodes_);
  }

 private:
  /// The node of a schema; the same text is the same node, which closes recursion.
  Result<int> node_of(const json::value& schema) {
    const auto [at, is_new] = ids_.emplace(to_json(schema), static_cast<int>(nodes_.size()));
    if (!is_new) return at->second;
    if (nodes_.size() == kMaxNodes)
      return bad_schema(fmt::format("the schema has more than {} parts", kMaxNodes));
    nodes_.emplace_back();
    sources_.push_back(std::make_unique<json::value>(schema));
    return at->second;
  }

  Result<void> count_parts(std::size_t n) {
    parts_ += n;
    if (parts_ > kMaxParts)
      return bad_schema(fmt::format("the schema has more than {} parts", kMaxParts));
    return {};
  }

  Result<JsonNode> read(const json::value& schema) {
    JsonNode node;
    TRY(const std::vector<json::object> alternatives, schema_alternatives(root_, schema, work_));
    for (const json::object& one : alternatives) {
      TRY_VOID(add_shapes(one, node));
    }
    return node;
  }

  static std::vector<std::string> types_of(const json::object& schema) {
    std::vector<std::string> types;
    if (const json::value* listed = schema.if_contains("type")) {
      for (const json::value& type : listed->as_array())
        types.emplace_back(type.as_string());
      return types;
    }
    const auto any = [&](std::initializer_list<const char*> keys) {
      return std::any_of(keys.begin(), keys.end(),
                         [&](const char* key) { return schema.contains(key); });
    };
    if (any({"properties", "required", "additionalProperties", "patternProperties"}))
      types.push_back("object");
    if (any({"items", "prefixItems", "minItems", "maxItems"})) types.push_back("array");
    if (any({"minLength", "maxLength", "pattern", "format"})) types.push_back("string");
    if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"}))
      types.push_back("number");
    if (types.empty()) types = {"object", "array", "string", "number", "boolean", "null"};
    return types;
  }

  Result<void> add_shapes(const json::object& schema, JsonNode& node) {
    if (const json::value* listed = schema.if_contains("enum"))
      return add_literals(schema, listed->as_array(), node);
    for (const std::string& type : types_of(schema)) {
      JsonShape shape;
      if (type == "object") {
        TRY(shape, object(schema));
      } else if (type == "array") {
        TRY(shape, array(schema));
      } else if (type == "string") {
        shape.kind = Kind::string;
        TRY(shape.min, length_of(schema, "minLength", 0));
        TRY(shape.max, length_of(schema, "maxLength", kNoLimit));
      } else if (type == "integer") {
        shape = integer(schema);
      } else if (type == "number") {
        shape = number(schema);
      } else {
        shape.texts = type == "null" ? std::vector<std::string>{"null"}
                                     : std::vector<std::string>{"false", "true"};
      }
      node.shapes.push_back(std::move(shape));
    }
    return {};
  }

  Result<void> add_literals(const json::object& schema, const json::array& values, JsonNode& node) {
    TRY_VOID(count_parts(values.size()));
    json::object rest = schema;  // what else it says holds for each of them
    rest.erase("enum");
    std::map<int, std::vector<std::string>> by_height;
    for (const json::value& value : values) {
      TRY(const bool fits, value_fits(root_, rest, value, work_));
      if (!fits) continue;
      by_height[nesting(value, kMaxSchemaDepth)].push_back(to_json(value));
    }
    for (auto& [height, texts] : by_height) {
      std::sort(texts.begin(), texts.end());
      texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
      JsonShape shape;
      shape.texts = std::move(texts);
      shape.height = height;
      node.shapes.push_back(std::move(shape));
    }
    return {};
  }

  Result<JsonShape> object(const json::object& schema) {
    JsonShape shape;
    shape.kind = Kind::object;
    const json::value* others = schema.if_contains("additionalProperties");
    const json::value* properties = schema.if_contains("properties");
    const json::value* required = schema.if_contains("required");
    const bool says_nothing =
        !others && !required && (!properties || properties->as_object().empty());
    const json::value anything(true);
    if (!others && (says_nothing || schema.contains("patternProperties"))) others = &anything;
    if (properties) {
      for (const auto& [name, value] : properties->as_object()) {
        TRY(const int node, node_of(value));
        shape.members.push_back({std::string(name), node, false});
      }
    }
    if (required) {
      std::unordered_map<std::string, std::size_t> places;
      for (const JsonShape::Member& member : shape.members)
        places.emplace(member.name, places.size());
      for (const json::value& name : required->as_array()) {
        const auto [at, is_new] =
            places.emplace(std::string(std::string_view(name.as_string())), places.size());
        if (is_new) {
          TRY(const int node, node_of(others ? *others : anything));
          shape.members.push_back({at->first, node, true});
        }
        shape.members[at->second].required = true;
      }
    }
    if (others && *others != json::value(false)) {
      TRY(shape.extra, node_of(*others));
    }
    TRY_VOID(count_parts(shape.members.size()));
    return shape;
  }

  Result<JsonShape> array(const json::object& schema) {
    JsonShape shape;
    shape.kind = Kind::array;
    TRY(shape.min, length_of(schema, "minItems", 0));
    TRY(shape.max, length_of(schema, "maxItems", kNoLimit));
    const json::value* items = schema.if_contains("items");
    if (const json::value* prefix = schema.if_contains("prefixItems")) {
      for (const json::value& item : prefix->as_array()) {
        TRY(const int node, node_of(item));
        shape.prefix.push_back(node);
      }
    }
    TRY_VOID(count_parts(shape.prefix.size()));
    const auto listed = static_cast<std::int64_t>(shape.prefix.size());
    if (!items && listed > 0 && shape.min <= listed) {
      shape.max = std::min(shape.max, listed);
    } else if (!items || *items != json::value(false)) {
      TRY(shape.rest, node_of(items ? *items : json::value(true)));
    }
    return shape;
  }

  static JsonShape integer(const json::object& schema) {
    JsonShape shape;
    shape.kind = Kind::integer;
    shape.min = -kMostJsonInteger;
    shape.max = kMostJsonInteger;
    const auto clamp = [](double x) {
      const auto most = static_cast<double>(kMostJsonInteger);
      if (x >= most) return kMostJsonInteger;
      return x <= -most ? -kMostJsonInteger : static_cast<std::int64_t>(x);
    };
    if (const auto low = number_bound(schema, true)) {
      shape.min = clamp(std::ceil(low->value));
      if (low->open && static_cast<double>(shape.min) == low->value) ++shape.min;
    }
    if (const auto high = number_bound(schema, false)) {
      shape.max = clamp(std::floor(high->value));
      if (high->open && static_cast<double>(shape.max) == high->value) --shape.max;
    }
    return shape;
  }

  static JsonShape number(const json::object& schema) {
    JsonShape shape;
    shape.kind = Kind::number;
    if (const auto low = number_bound(schema, true)) shape.may_be_negative = low->value < 0;
    if (const auto high = number_bound(schema, false)) shape.may_be_positive = high->value >= 0;
    return shape;
  }

  // --- what can be completed ------------------------------------------------------------------

  int height_of(int node) const { return nodes_[static_cast<std::size_t>(node)].height; }

  int height_of(const JsonShape& shape) const {
    int inner = 0;
    switch (shape.kind) {
      case Kind::literals:
        return shape.texts.empty() ? kNever : shape.height;
      case Kind::number:
        return shape.may_be_negative || shape.may_be_positive ? 0 : kNever;
      case Kind::string:
      case Kind::integer:
        return shape.min <= shape.max ? 0 : kNever;
      case Kind::object:
        for (const JsonShape::Member& member : shape.members)
          if (member.required) inner = std::max(inner, height_of(member.node));
        return std::min(kNever, inner + 1);
      case Kind::array:
        if (shape.min > shape.max) return kNever;
        for (std::size_t i = 0; i < shape.prefix.size(); ++i)
          if (static_cast<std::int64_t>(i) < shape.min)
            inner = std::max(inner, height_of(shape.prefix[i]));
        if (shape.min > static_cast<std::int64_t>(shape.prefix.size()))
          inner = std::max(inner, shape.rest < 0 ? kNever : height_of(shape.rest));
        return std::min(kNever, inner + 1);
    }
    return kNever;
  }

  /// The least fixed point: from "never" down, as long as something gets lower. Each round fixes
  /// at least one height for good.
  void find_heights() {
    for (JsonNode& node : nodes_)
      node.height = kNever;
    for (bool changed = true; changed;) {
      changed = false;
      for (JsonNode& node : nodes_) {
        int least = kNever;
        for (const JsonShape& shape : node.shapes)
          least = std::min(least, height_of(shape));
        if (least < node.height) node.height = least, changed = true;
      }
    }
  }

  /// Leaves only what can be completed within the depth.
  void prune(JsonNode& node) const {
    const auto hopeless = [&](int n) { return height_of(n) >= kMaxJsonDepth; };
    for (JsonShape& shape : node.shapes) {
      shape.height = height_of(shape);
      std::erase_if(shape.members,
                    [&](const JsonShape::Member& m) { return !m.required && hopeless(m.node); });
      if (shape.extra >= 0 && hopeless(shape.extra)) shape.extra = -1;
      if (shape.rest >= 0 && hopeless(shape.rest)) shape.rest = -1;
      if (shape.kind != Kind::array) continue;
      const auto end = std::find_if(shape.prefix.begin(), shape.prefix.end(), hopeless);
      if (end != shape.prefix.end()) shape.rest = -1;
      shape.prefix.erase(end, shape.prefix.end());
      if (shape.rest < 0)
        shape.max = std::min(shape.max, static_cast<std::int64_t>(shape.prefix.size()));
    }
    std::erase_if(node.shapes, [](const JsonShape& s) { return s.height > kMaxJsonDepth; });
  }

  const json::value root_;
  std::map<std::string, int> ids_;
  std::vector<JsonNode> nodes_;
  std::vector<std::unique_ptr<json::value>> sources_;
  std::size_t parts_ = 0;
  SchemaWork work_;
};

}  // namespace

Result<std::vector<JsonNode>> json_shapes(const json::object& schema) {
  if (nesting(schema, kMaxSchemaDepth + 1) > kMaxSchemaDepth)
    return bad_schema(fmt::format("the schema is nested deeper than {} levels", kMaxSchemaDepth));
  if (to_json(schema).size() > kMaxSchemaBytes)
    return bad_schema(fmt::format("the schema has more than {} bytes", kMaxSchemaBytes));
  return Normalizer(schema).all();
}

}  // namespace ponder::text
