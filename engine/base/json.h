#pragma once
// JSON from outside, bounded before it is parsed. Objects keep the order of their keys.
#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace ponder {

namespace json = boost::json;

struct JsonLimits {
  std::size_t max_bytes = 32u << 20;
  std::size_t max_depth = 64;
  /// Keys and values together. One takes 4 bytes of text and, parsed, some hundred of memory.
  std::size_t max_values = SIZE_MAX;
};

/// Strict UTF-8 JSON: refuses text over the limits, invalid UTF-8, duplicate keys, trailing data
/// and numbers that are not finite. Errors are bad_request (too_large for the size) and say where.
Result<json::value> parse_json(std::string_view text, const JsonLimits& limits = {});
/// The same, and the root must be an object.
Result<json::object> parse_json_object(std::string_view text, const JsonLimits& limits = {});

/// `value` on one line. Key order kept; non-ASCII not escaped.
std::string to_json(const json::value& value);

/// Typed optional fields: absent or null gives `fallback`; another type, or a number outside
/// [min, max], is bad_request naming the field.
Result<std::string> string_field(const json::object& object, std::string_view key,
                                 std::string fallback = {});
Result<bool> bool_field(const json::object& object, std::string_view key, bool fallback);
Result<std::int64_t> int_field(const json::object& object, std::string_view key,
                               std::int64_t fallback, std::int64_t min, std::int64_t max);
Result<double> number_field(const json::object& object, std::string_view key, double fallback,
                            double min, double max);
/// Whether `value` is of a JSON Schema's type. Of 1.0 the drafts and their readers say different
/// things; here an "integer" has no point.
bool has_schema_type(const json::value& value, std::string_view type);

/// True if the key is present and not null.
bool has_field(const json::object& object, std::string_view key);

}  // namespace ponder
