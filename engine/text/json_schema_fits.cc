#include "engine/text/json_schema_fits.h"

#include <algorithm>
#include <vector>

namespace ponder::text {
namespace {

bool is_allowed(const json::object& plain, const json::value& value) {
  if (const json::value* types = plain.if_contains("type"))
    if (std::none_of(types->as_array().begin(), types->as_array().end(), [&](const auto& type) {
          return has_schema_type(value, std::string_view(type.as_string()));
        }))
      return false;
  const json::value* listed = plain.if_contains("enum");
  return !listed || std::find(listed->as_array().begin(), listed->as_array().end(), value) !=
                        listed->as_array().end();
}

bool number_fits(const json::object& plain, double value) {
  const auto low = number_bound(plain, true), high = number_bound(plain, false);
  return (!low || value > low->value || (value == low->value && !low->open)) &&
         (!high || value < high->value || (value == high->value && !high->open));
}

bool length_fits(const json::object& plain, std::string_view least, std::string_view most,
                 std::size_t length) {
  const auto bound = [&](std::string_view key) -> std::optional<double> {
    const json::value* n = plain.if_contains(key);
    return n && n->is_number() ? std::optional(n->to_number<double>()) : std::nullopt;
  };
  const auto low = bound(least), high = bound(most);
  const auto n = static_cast<double>(length);
  return (!low || n >= *low) && (!high || n <= *high);
}

class Fits {
 public:
  Fits(const json::value& root, SchemaWork& work) : root_(root), work_(work) {}

  Result<bool> plain(const json::object& schema, const json::value& value) {
    TRY_VOID(work_.spend(64));
    if (!is_allowed(schema, value)) return false;
    if (value.is_number()) return number_fits(schema, value.to_number<double>());
    if (const json::string* text = value.if_string()) {
      const auto characters = std::count_if(text->begin(), text->end(), [](char c) {
        return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
      });
      return length_fits(schema, "minLength", "maxLength", static_cast<std::size_t>(characters));
    }
    if (const json::array* list = value.if_array()) return array(schema, *list);
    if (const json::object* members = value.if_object()) return object(schema, *members);
    return true;
  }

 private:
  /// `schema` null: nothing is said.
  Result<bool> any(const json::value* schema, const json::value& value) {
    if (!schema) return true;
    TRY(const std::vector<json::object> alternatives, schema_alternatives(root_, *schema, work_));
    for (const json::object& one : alternatives) {
      TRY(const bool fits, plain(one, value));
      if (fits) return true;
    }
    return false;
  }

  Result<bool> array(const json::object& schema, const json::array& list) {
    if (!length_fits(schema, "minItems", "maxItems", list.size())) return false;
    const json::value* prefix = schema.if_contains("prefixItems");
    const std::size_t listed = prefix ? prefix->as_array().size() : 0;
    for (std::size_t i = 0; i < list.size(); ++i) {
      TRY(const bool fits,
          any(i < listed ? &prefix->as_array()[i] : schema.if_contains("items"), list[i]));
      if (!fits) return false;
    }
    return true;
  }

  Result<bool> object(const json::object& schema, const json::object& members) {
    if (const json::value* required = schema.if_contains("required")) {
      TRY_VOID(work_.spend(16 * required->as_array().size()));
      for (const json::value& name : required->as_array())
        if (!members.contains(name.as_string())) return false;
    }
    const json::value* properties = schema.if_contains("properties");
    for (const auto& [name, member] : members) {
      const json::value* own = properties ? properties->as_object().if_contains(name) : nullptr;
      if (!own && schema.contains("patternProperties")) continue;  // it may be one of those
      TRY(const bool fits, any(own ? own : schema.if_contains("additionalProperties"), member));
      if (!fits) return false;
    }
    return true;
  }

  const json::value& root_;
  SchemaWork& work_;
};

}  // namespace

std::optional<NumberBound> number_bound(const json::object& plain, bool lower) {
  std::optional<NumberBound> out;
  const json::value* value = plain.if_contains(lower ? "minimum" : "maximum");
  const json::value* other = plain.if_contains(lower ? "exclusiveMinimum" : "exclusiveMaximum");
  if (value && value->is_number())
    out = {value->to_number<double>(), other && other->is_bool() && other->as_bool()};
  if (other && other->is_number()) {
    const auto n = other->to_number<double>();
    if (!out || (lower ? n >= out->value : n <= out->value)) out = {n, true};
  }
  return out;
}

Result<bool> value_fits(const json::value& root, const json::object& plain,
                        const json::value& value, SchemaWork& work) {
  return Fits(root, work).plain(plain, value);
}

}  // namespace ponder::text
