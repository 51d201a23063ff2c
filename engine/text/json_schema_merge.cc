#include "engine/text/json_schema_merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>

namespace ponder::text {
namespace {

constexpr std::size_t kMaxAlternatives = 256;
constexpr int kMaxSteps = 4096;  // of multiplying out one schema

constexpr std::array<std::string_view, 7> kTypes{"object",  "array",   "string", "number",
                                                 "integer", "boolean", "null"};

constexpr std::array<std::string_view, 9> kDescriptions{"$schema",  "$id",         "$comment",
                                                        "title",    "description", "default",
                                                        "examples", "readOnly",    "writeOnly"};

/// About the bytes that a copy takes.
std::size_t size_of(const json::value& value);
std::size_t size_of(const json::object& object) {
  std::size_t bytes = 32;
  for (const auto& [key, value] : object)
    bytes += key.size() + size_of(value);
  return bytes;
}
std::size_t size_of(const json::value& value) {
  if (const json::object* object = value.if_object()) return size_of(*object);
  std::size_t bytes = 32;
  if (const json::string* text = value.if_string()) bytes += text->size();
  if (const json::array* list = value.if_array())
    for (const json::value& item : *list)
      bytes += size_of(item);
  return bytes;
}
/// Pairs that merging two schemas compares: each with each.
std::size_t pairs_of(const json::object& a, const json::object& b) {
  std::size_t pairs = 0;
  for (const char* key : {"enum", "required"}) {
    const json::value* x = a.if_contains(key);
    const json::value* y = b.if_contains(key);
    if (x && y) pairs += x->as_array().size() * y->as_array().size();
  }
  return pairs;
}

bool contains(const json::array& all, const json::value& one) {
  return std::find(all.begin(), all.end(), one) != all.end();
}

/// The part of `root` that "#/a/b" names.
const json::value* find_reference(const json::value& root, std::string_view reference) {
  const json::value* at = &root;
  reference.remove_prefix(1);
  while (!reference.empty()) {
    if (reference.front() != '/') return nullptr;
    reference.remove_prefix(1);
    const std::size_t end = std::min(reference.find('/'), reference.size());
    std::string key;
    for (std::size_t i = 0; i < end; ++i) {
      const std::string_view rest = reference.substr(i, end - i);
      if (rest.starts_with("~0") || rest.starts_with("~1")) {
        key += rest[1] == '0' ? '~' : '/';
        i += 1;
      } else {
        key += rest[0];
      }
    }
    reference.remove_prefix(end);
    if (const json::object* object = at->if_object()) {
      at = object->if_contains(key);
    } else if (const json::array* list = at->if_array();
               list && key.size() < 6 && !key.empty() &&
               key.find_first_not_of("0123456789") == std::string::npos) {
      at = list->if_contains(std::stoul(key));
    } else {
      at = nullptr;
    }
    if (!at) return nullptr;
  }
  return at;
}

Result<json::array> type_list(const json::value& type) {
  json::array list = type.is_array() ? type.as_array() : json::array{type};
  for (const json::value& one : list)
    if (!one.is_string() ||
        std::find(kTypes.begin(), kTypes.end(), std::string_view(one.as_string())) == kTypes.end())
      return bad_schema(fmt::format("the schema has a \"type\" that does not exist: {}",
                                    to_json(one).substr(0, 60)));
  return list;
}

/// A schema's own keywords, in one spelling.
Result<json::object> plain_part(const json::object& schema) {
  json::object plain;
  for (const auto& [key, value] : schema) {
    if (std::find(kDescriptions.begin(), kDescriptions.end(), std::string_view(key)) !=
        kDescriptions.end())
      continue;
    if (key == "type") {
      TRY(plain["type"], type_list(value));
    } else if (key == "const") {
      plain["enum"] = json::array{value};
    } else if (key == "enum") {
      if (!value.is_array()) return bad_schema("\"enum\" in the schema must be a list");
      if (!schema.contains("const")) plain["enum"] = value;
    } else if (key == "properties" || key == "patternProperties") {
      if (!value.is_object())
        return bad_schema(fmt::format("\"{}\" in the schema must be an object", std::string(key)));
      plain[key] = value;
    } else if (key == "required") {
      // A word there is how drafts before 4 mark a property; it says nothing of this value.
      if (!value.is_array()) continue;
      for (const json::value& name : value.as_array())
        if (!name.is_string()) return bad_schema("\"required\" in the schema must list names");
      plain[key] = value;
    } else if (key == "items" && value.is_array()) {
      plain["prefixItems"] = value;
    } else if (key == "additionalItems") {
      if (const json::value* items = schema.if_contains("items"); items && items->is_array())
        plain["items"] = value;
    } else if (key == "prefixItems") {
      if (!value.is_array()) return bad_schema("\"prefixItems\" in the schema must be a list");
      plain[key] = value;
    } else if (key != "$ref" && key != "allOf" && key != "anyOf" && key != "oneOf" &&
               key != "$defs" && key != "definitions") {
      plain[key] = value;
    }
  }
  return plain;
}

json::value both(const json::value& a, const json::value& b) {
  if (a == b) return a;
  return json::object{{"allOf", json::array{a, b}}};
}

/// Properties of one side meet the other's, or what it says of names that it does not list.
json::object merge_properties(const json::object& a, const json::object& b) {
  static const json::object kNone;
  const auto properties = [](const json::object& o) -> const json::object& {
    const json::value* v = o.if_contains("properties");
    return v ? v->as_object() : kNone;
  };
  json::object out = properties(a);
  const json::value* others_a = a.if_contains("additionalProperties");
  const json::value* others_b = b.if_contains("additionalProperties");
  for (auto& [name, schema] : out) {
    const json::value* other = properties(b).if_contains(name);
    if (!other) other = others_b;
    if (other) schema = both(schema, *other);
  }
  for (const auto& [name, schema] : properties(b))
    if (!out.contains(name)) out[name] = others_a ? both(*others_a, schema) : schema;
  return out;
}

json::array merge_prefixes(const json::object& a, const json::object& b) {
  static const json::array kNone;
  const auto prefix = [](const json::object& o) -> const json::array& {
    const json::value* v = o.if_contains("prefixItems");
    return v ? v->as_array() : kNone;
  };
  const auto item = [&](const json::object& o, std::size_t i) -> const json::value* {
    return i < prefix(o).size() ? &prefix(o)[i] : o.if_contains("items");
  };
  json::array out;
  for (std::size_t i = 0; i < std::max(prefix(a).size(), prefix(b).size()); ++i) {
    const json::value* x = item(a, i);
    const json::value* y = item(b, i);
    out.push_back(x && y ? both(*x, *y) : x ? *x : *y);
  }
  return out;
}

json::array common_types(const json::array& a, const json::array& b) {
  json::array out;
  const json::value number("number"), integer("integer");
  for (const json::value& type : a) {
    if (contains(b, type))
      out.push_back(type);
    else if ((type == number && contains(b, integer)) || (type == integer && contains(b, number)))
      out.push_back(integer);
  }
  return out;
}

/// `a` and `b` at once, both plain. Nothing: they exclude each other.
std::optional<json::object> merge(const json::object& a, const json::object& b) {
  json::object out = a;
  for (const auto& [key, value] : b) {
    const json::value* mine = a.if_contains(key);
    if (!mine) {
      out[key] = value;
    } else if (key == "type") {
      out[key] = common_types(mine->as_array(), value.as_array());
      if (out[key].as_array().empty()) return std::nullopt;
    } else if (key == "enum") {
      json::array common;
      for (const json::value& one : mine->as_array())
        if (contains(value.as_array(), one)) common.push_back(one);
      if (common.empty()) return std::nullopt;
      out[key] = std::move(common);
    } else if (key == "required") {
      for (const json::value& name : value.as_array())
        if (!contains(out[key].as_array(), name)) out[key].as_array().push_back(name);
    } else if (key == "additionalProperties" || key == "items") {
      out[key] = both(*mine, value);
    } else if (mine->is_number() && value.is_number() && key.starts_with("m")) {
      const bool larger = key.starts_with("min");
      if ((value.to_number<double>() > mine->to_number<double>()) == larger) out[key] = value;
    } else if (mine->is_number() && value.is_number() && key.starts_with("exclusive")) {
      const bool larger = key == "exclusiveMinimum";
      if ((value.to_number<double>() > mine->to_number<double>()) == larger) out[key] = value;
    }
  }
  if (a.contains("properties") || b.contains("properties"))
    out["properties"] = merge_properties(a, b);
  if (a.contains("prefixItems") || b.contains("prefixItems"))
    out["prefixItems"] = merge_prefixes(a, b);
  return out;
}

/// The references that led to a schema: one that comes again demands itself and nothing else.
struct Trail {
  std::string reference;
  std::shared_ptr<const Trail> before;
};
bool passed(const Trail* trail, std::string_view reference) {
  for (; trail; trail = trail->before.get())
    if (trail->reference == reference) return true;
  return false;
}

struct Part {
  json::value schema;
  std::shared_ptr<const Trail> trail;
};
struct Alternative {
  json::object plain;
  std::vector<Part> left;  // still to be merged, the next one last

  std::size_t size() const {
    std::size_t bytes = size_of(plain);
    for (const Part& part : left)
      bytes += size_of(part.schema);
    return bytes;
  }
};

class Multiplier {
 public:
  Multiplier(const json::value& root, SchemaWork& work) : root_(root), work_(work) {}

  Result<std::vector<json::object>> all(const json::value& schema) {
    std::vector<json::object> out;
    open_.push_back({{}, {{schema, nullptr}}});
    for (int steps = 0; !open_.empty(); ++steps) {
      if (steps > kMaxSteps || open_.size() + out.size() > kMaxAlternatives)
        return bad_schema("the schema combines too many alternatives");
      Alternative now = std::move(open_.back());
      open_.pop_back();
      TRY_VOID(work_.spend(size_of(now.plain) * (1 + out.size() / 8)));
      if (!now.left.empty()) {
        TRY_VOID(merge_next(std::move(now)));
      } else if (std::find(out.begin(), out.end(), now.plain) == out.end()) {
        out.push_back(std::move(now.plain));
      }
    }
    return out;
  }

 private:
  Result<void> merge_next(Alternative now) {
    const Part part = std::move(now.left.back());
    now.left.pop_back();
    if (part.schema.is_bool()) {
      if (part.schema.as_bool()) open_.push_back(std::move(now));
      return {};
    }
    const json::object* schema = part.schema.if_object();
    if (!schema) return bad_schema("a schema must be an object, true or false");
    TRY_VOID(work_.spend(size_of(*schema)));
    TRY(const json::object plain, plain_part(*schema));
    TRY_VOID(work_.spend(pairs_of(now.plain, plain)));
    std::optional<json::object> merged = merge(now.plain, plain);
    if (!merged) return {};
    now.plain = std::move(*merged);
    if (const json::value* reference = schema->if_contains("$ref")) {
      TRY(const bool fits, follow(*reference, part.trail, now));
      if (!fits) return {};
    }
    if (const json::value* all_of = schema->if_contains("allOf")) {
      TRY(const json::array* list, list_of(*all_of));
      for (auto one = list->rbegin(); one != list->rend(); ++one)
        now.left.push_back({*one, part.trail});
    }
    return choose(std::move(now), *schema, part.trail);
  }

  /// One alternative for each pair of what anyOf and oneOf list.
  Result<void> choose(Alternative now, const json::object& schema,
                      const std::shared_ptr<const Trail>& trail) {
    std::vector<Alternative> some{std::move(now)};
    for (const char* word : {"oneOf", "anyOf"}) {
      const json::value* value = schema.if_contains(word);
      if (!value) continue;
      TRY(const json::array* list, list_of(*value));
      if (some.size() * list->size() > kMaxAlternatives)
        return bad_schema("the schema combines too many alternatives");
      std::vector<Alternative> more;
      for (const Alternative& one : some) {
        TRY_VOID(work_.spend(one.size() * list->size()));
        for (const json::value& choice : *list) {
          more.push_back(one);
          more.back().left.push_back({choice, trail});
        }
      }
      some = std::move(more);
    }
    std::move(some.rbegin(), some.rend(), std::back_inserter(open_));
    return {};
  }

  Result<bool> follow(const json::value& reference, const std::shared_ptr<const Trail>& trail,
                      Alternative& now) {
    const json::string* text = reference.if_string();
    if (!text || !text->starts_with("#"))
      return bad_schema("the schema refers to another document; only \"#/...\" is supported");
    if (passed(trail.get(), *text)) return false;
    const json::value* target = find_reference(root_, std::string_view(*text));
    if (!target)
      return bad_schema(fmt::format("the schema refers to \"{}\", which is not in it",
                                    std::string_view(*text).substr(0, 80)));
    now.left.push_back({*target, std::make_shared<Trail>(Trail{text->c_str(), trail})});
    return true;
  }

  Result<const json::array*> list_of(const json::value& value) {
    if (!value.is_array() || value.as_array().empty())
      return bad_schema("\"allOf\", \"anyOf\" and \"oneOf\" in a schema must list schemas");
    return &value.as_array();
  }

  const json::value& root_;
  SchemaWork& work_;
  std::vector<Alternative> open_;
};

}  // namespace

Result<void> SchemaWork::spend(std::size_t bytes) {
  if (bytes > left) return bad_schema("the schema combines too many alternatives");
  left -= bytes;
  return {};
}

tl::unexpected<Error> bad_schema(std::string message) {
  Error error{ErrorCode::bad_request, std::move(message)};
  error.param = "schema";
  return fail(std::move(error));
}

Result<std::vector<json::object>> schema_alternatives(const json::value& root,
                                                      const json::value& schema, SchemaWork& work) {
  return Multiplier(root, work).all(schema);
}

}  // namespace ponder::text
