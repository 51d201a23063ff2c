#include "engine/text/tool_arguments.h"

#include <algorithm>
#include <cmath>

namespace ponder::text {
namespace {

constexpr int kMaxSchemaDepth = 16;
constexpr int kMaxSchemas = 256;  // looked at for one argument

enum Types : unsigned {
  kNone = 0,
  kString = 1,
  kInteger = 2,
  kNumber = 4,
  kBoolean = 8,
  kArray = 16,
  kObject = 32,
  kNull = 64,
  kAny = 127,
};

unsigned type_of_word(std::string_view word) {
  if (word == "string") return kString;
  if (word == "integer") return kInteger;
  if (word == "number") return kNumber | kInteger;
  if (word == "boolean") return kBoolean;
  if (word == "array") return kArray;
  if (word == "object") return kObject;
  if (word == "null") return kNull;
  return kNone;
}

unsigned type_of_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return kNull;
    case json::kind::bool_:
      return kBoolean;
    case json::kind::int64:
    case json::kind::uint64:
      return kInteger;
    case json::kind::double_:
      return kNumber;
    case json::kind::string:
      return kString;
    case json::kind::array:
      return kArray;
    case json::kind::object:
      return kObject;
  }
  return kNone;
}

/// Collects the types that a schema allows.
class SchemaTypes {
 public:
  explicit SchemaTypes(const json::object& root) : root_(root) {}

  /// kNone where it says nothing about types.
  unsigned of(const json::value& schema, int depth = 0) {
    const json::object* object = schema.if_object();
    if (!object || depth > kMaxSchemaDepth || ++looked_at_ > kMaxSchemas) return kNone;
    if (const json::value* reference = object->if_contains("$ref")) {
      const json::value* target = resolve(*reference);
      return target ? of(*target, depth + 1) : unsigned{kNone};
    }
    if (const json::value* type = object->if_contains("type")) return of_type(*type);
    unsigned types = kNone;
    for (const char* word : {"anyOf", "oneOf", "allOf"}) {
      const json::value* choices = object->if_contains(word);
      if (!choices || !choices->is_array()) continue;
      for (const json::value& choice : choices->get_array())
        types |= of(choice, depth + 1);
    }
    if (const json::value* values = object->if_contains("enum"); values && values->is_array())
      for (const json::value& value : values->get_array())
        types |= type_of_value(value);
    if (const json::value* value = object->if_contains("const")) types |= type_of_value(*value);
    if (types != kNone) {
      const json::value* nullable = object->if_contains("nullable");
      return nullable && nullable->is_bool() && nullable->get_bool() ? types | kNull : types;
    }
    if (object->contains("properties")) return kObject;
    return object->contains("items") ? unsigned{kArray} : unsigned{kNone};
  }

 private:
  static unsigned of_type(const json::value& type) {
    if (type.is_string()) return type_of_word(type.get_string());
    unsigned types = kNone;
    if (const json::array* words = type.if_array())
      for (const json::value& word : *words)
        if (word.is_string()) types |= type_of_word(word.get_string());
    return types;
  }

  /// "#/$defs/Name" inside the parameters.
  const json::value* resolve(const json::value& reference) const {
    if (!reference.is_string()) return nullptr;
    std::string_view path = reference.get_string();
    if (path.substr(0, 2) != "#/") return nullptr;
    path.remove_prefix(2);
    const json::object* at = &root_;
    while (at) {
      const std::size_t slash = std::min(path.find('/'), path.size());
      const json::value* next = at->if_contains(path.substr(0, slash));
      if (!next || slash == path.size()) return next;
      path.remove_prefix(slash + 1);
      at = next->if_object();
    }
    return nullptr;
  }

  const json::object& root_;
  int looked_at_ = 0;
};

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Whether `value` is of one of the types; a whole double becomes the integer it stands for.
bool fits(json::value& value, unsigned types) {
  const unsigned own = type_of_value(value);
  if (own == kNumber && !(types & kNumber)) {
    const double d = value.get_double();
    if (!(types & kInteger) || d != std::floor(d) || std::abs(d) > 9e15) return false;
    value = static_cast<std::int64_t>(d);
    return true;
  }
  return (own & types) != 0;
}

}  // namespace

const json::object* find_parameters(const json::array& tools, std::string_view name) {
  for (const json::value& tool : tools) {
    const json::object* object = tool.if_object();
    if (!object) continue;
    const json::value* wrapped = object->if_contains("function");
    const json::object* function = wrapped ? wrapped->if_object() : object;
    if (!function) continue;
    const json::value* own = function->if_contains("name");
    if (!own || !own->is_string() || std::string_view(own->get_string()) != name) continue;
    const json::value* parameters = function->if_contains("parameters");
    if (!parameters) parameters = function->if_contains("input_schema");
    return parameters ? parameters->if_object() : nullptr;
  }
  return nullptr;
}

json::value typed_argument(const json::object* parameters, std::string_view key,
                           std::string_view text) {
  const json::value* properties = parameters ? parameters->if_contains("properties") : nullptr;
  const json::value* schema =
      properties && properties->is_object() ? properties->get_object().if_contains(key) : nullptr;
  const unsigned types = schema ? SchemaTypes(*parameters).of(*schema) : unsigned{kNone};
  json::value verbatim(text);
  if ((types & ~kString) == kNone) return verbatim;
  const std::string_view inner = trimmed(text);
  if ((types & kBoolean) && (inner == "True" || inner == "False")) return inner == "True";
  if ((types & kNull) && inner == "None") return nullptr;
  auto parsed = parse_json(inner);
  if (!parsed || !fits(*parsed, types & ~kString)) return verbatim;
  return std::move(*parsed);
}

}  // namespace ponder::text
