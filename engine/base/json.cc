#include "engine/base/json.h"

#include <fmt/core.h>

#include <array>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value_stack.hpp>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <set>
#include <utility>

#include "engine/base/utf8.h"

namespace ponder {
namespace {

/// Builds the value, as the library's own handler does, and refuses what that would accept:
/// infinities (1e400), duplicate keys, of which it silently keeps the last, and more values than
/// are wanted.
class StrictHandler {
 public:
  static constexpr std::size_t max_object_size = std::size_t(-1);
  static constexpr std::size_t max_array_size = std::size_t(-1);
  static constexpr std::size_t max_key_size = std::size_t(-1);
  static constexpr std::size_t max_string_size = std::size_t(-1);
  using Code = boost::system::error_code;

  std::string problem;
  std::size_t values_left = SIZE_MAX;

  StrictHandler() { stack_.reset(); }
  json::value release() { return stack_.release(); }

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code& ec) {
    keys_.emplace_back();
    return one_more(ec);
  }
  bool on_object_end(std::size_t n, Code&) {
    keys_.pop_back();
    stack_.push_object(n);
    return true;
  }
  bool on_array_begin(Code& ec) { return one_more(ec); }
  bool on_array_end(std::size_t n, Code&) {
    stack_.push_array(n);
    return true;
  }
  bool on_key_part(std::string_view s, std::size_t, Code&) {
    key_.append(s);
    stack_.push_chars(s);
    return true;
  }
  bool on_key(std::string_view s, std::size_t, Code& ec) {
    key_.append(s);
    const bool fresh = keys_.back().insert(key_).second;
    if (!fresh) {
      problem = fmt::format("the key \"{}\" stands twice in one object", key_.substr(0, 80));
      ec = boost::json::error::syntax;
    }
    key_.clear();
    stack_.push_key(s);
    return fresh && one_more(ec);
  }
  bool on_string_part(std::string_view s, std::size_t, Code&) {
    stack_.push_chars(s);
    return true;
  }
  bool on_string(std::string_view s, std::size_t, Code& ec) {
    stack_.push_string(s);
    return one_more(ec);
  }
  bool on_number_part(std::string_view s, Code&) {
    number_.append(s);
    return true;
  }
  bool on_int64(std::int64_t i, std::string_view, Code& ec) {
    number_.clear();
    stack_.push_int64(i);
    return one_more(ec);
  }
  bool on_uint64(std::uint64_t u, std::string_view, Code& ec) {
    number_.clear();
    stack_.push_uint64(u);
    return one_more(ec);
  }
  /// The library's own reading of the digits is a unit or two of the last place off for some, so
  /// that a number that was written and read again would be another. The C library's is exact: no
  /// program here leaves its C locale, and macOS has no from_chars for these.
  bool on_double(double, std::string_view s, Code& ec) {
    number_.append(s);
    const double d = std::strtod(number_.c_str(), nullptr);
    number_.clear();
    stack_.push_double(d);
    if (std::isfinite(d)) return one_more(ec);
    problem = "a number is too large";
    ec = boost::json::error::syntax;
    return false;
  }
  bool on_bool(bool b, Code& ec) {
    stack_.push_bool(b);
    return one_more(ec);
  }
  bool on_null(Code& ec) {
    stack_.push_null();
    return one_more(ec);
  }
  bool on_comment_part(std::string_view, Code&) { return true; }
  bool on_comment(std::string_view, Code&) { return true; }

 private:
  bool one_more(Code& ec) {
    if (values_left-- > 0) return true;
    problem = "it has too many values";
    ec = boost::json::error::syntax;
    return false;
  }

  json::value_stack stack_;
  std::vector<std::set<std::string, std::less<>>> keys_;
  std::string key_;
  std::string number_;  // the digits of the number that is being read
};

/// Boost writes every double with an exponent (2.5E0); people and models read these.
void write_double(std::string& out, double d) {
  if (!std::isfinite(d)) {  // JSON has no such number: no value
    out += "null";
    return;
  }
  const std::string shortest = fmt::format("{}", d);
  out += shortest;
  // Stays a number with a fraction for whoever reads it back.
  if (shortest.find_first_of(".e") == std::string::npos) out += ".0";
}

/// How many bytes from `at` on surely need no escape: eight are looked at together, and the answer
/// stops before the first eight that may hold one.
std::size_t plain_bytes(std::string_view text, std::size_t at) {
  constexpr std::uint64_t kOnes = 0x0101010101010101u;
  constexpr std::uint64_t kHigh = 0x8080808080808080u;
  std::size_t i = at;
  for (std::uint64_t eight = 0; text.size() - i >= sizeof eight; i += sizeof eight) {
    std::memcpy(&eight, text.data() + i, sizeof eight);
    const std::uint64_t quote = eight ^ (kOnes * '"');
    const std::uint64_t backslash = eight ^ (kOnes * '\\');
    const std::uint64_t found = ((eight - kOnes * ' ') & ~eight) | ((quote - kOnes) & ~quote) |
                                ((backslash - kOnes) & ~backslash);
    if ((found & kHigh) != 0) break;
  }
  return i - at;
}

/// What follows the backslash for each byte, or 0 where there is none.
constexpr std::array<char, 256> kEscapes = [] {
  std::array<char, 256> table{};
  for (int byte = 0; byte < ' '; ++byte)
    table[static_cast<std::size_t>(byte)] = 'u';
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  constexpr std::string_view kLetters = "\"\\bfnrt";
  for (std::size_t i = 0; i < kShort.size(); ++i)
    table[static_cast<unsigned char>(kShort[i])] = kLetters[i];
  return table;
}();

/// At most eight bytes, one by one: those that stopped plain_bytes(), or the last of a text.
void write_escaped(std::string& out, std::string_view few) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  char escaped[8 * 6];
  std::size_t n = 0;
  for (const char c : few) {
    const auto byte = static_cast<unsigned char>(c);
    const char letter = kEscapes[byte];
    if (letter != 0) escaped[n++] = '\\';
    escaped[n++] = letter != 0 ? letter : c;
    if (letter != 'u') continue;
    for (const char digit : {'0', '0', kDigits[byte / 16], kDigits[byte % 16]})
      escaped[n++] = digit;
  }
  out.append(escaped, n);
}

/// Straight into `out`: a text of megabytes is not copied once more to be escaped.
void write_text(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t plain = plain_bytes(text, i);
    out.append(text, i, plain);
    i += plain;
    const std::string_view few = text.substr(i, 8);
    write_escaped(out, few);
    i += few.size();
  }
  out += '"';
}

/// About as many bytes as write() will need, so that `out` grows once and not by doubling.
std::size_t about_size(const json::value& value) {
  std::size_t size = 8;
  if (const json::object* object = value.if_object()) {
    for (const auto& [key, member] : *object)
      size += key.size() + 4 + about_size(member);
  } else if (const json::array* array = value.if_array()) {
    for (const json::value& item : *array)
      size += 1 + about_size(item);
  } else if (const json::string* text = value.if_string()) {
    size += text->size() + text->size() / 64;
  }
  return size;
}

/// As deep as the value: what came from outside is bounded by JsonLimits::max_depth.
void write(std::string& out, const json::value& value) {
  switch (value.kind()) {
    case json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& [key, member] : value.get_object()) {
        if (!std::exchange(first, false)) out += ',';
        write_text(out, key);
        out += ':';
        write(out, member);
      }
      out += '}';
      return;
    }
    case json::kind::array: {
      out += '[';
      bool first = true;
      for (const json::value& item : value.get_array()) {
        if (!std::exchange(first, false)) out += ',';
        write(out, item);
      }
      out += ']';
      return;
    }
    case json::kind::double_:
      return write_double(out, value.get_double());
    case json::kind::string:
      return write_text(out, value.get_string());
    default:
      out += json::serialize(value);
  }
}

tl::unexpected<Error> field_error(std::string_view key, std::string message) {
  Error e{ErrorCode::bad_request, std::move(message)};
  e.param = std::string(key);
  return fail(std::move(e));
}
}  // namespace

Result<json::value> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return fail(ErrorCode::too_large, fmt::format("{} bytes of JSON; at most {} are accepted",
                                                  text.size(), limits.max_bytes));
  json::parse_options options;
  options.max_depth = limits.max_depth;
  boost::system::error_code ec;
  boost::json::basic_parser<StrictHandler> strict(options);
  strict.handler().values_left = limits.max_values;
  const std::size_t used = strict.write_some(false, text.data(), text.size(), ec);
  // The parser has found bad UTF-8 as any other fault; only here it needs a look of its own.
  if (ec && !is_valid_utf8(text))
    return fail(ErrorCode::bad_request, "the JSON is not valid UTF-8");
  if (ec == boost::json::error::too_deep)
    return fail(ErrorCode::bad_request,
                fmt::format("the JSON is nested deeper than {} levels", limits.max_depth));
  if (ec) {
    const std::string& problem = strict.handler().problem;
    return fail(
        ErrorCode::bad_request,
        fmt::format("not JSON: {} near byte {}", problem.empty() ? ec.message() : problem, used));
  }
  if (used < text.size())
    return fail(ErrorCode::bad_request, fmt::format("not JSON: extra data near byte {}", used));
  return strict.handler().release();
}

Result<json::object> parse_json_object(std::string_view text, const JsonLimits& limits) {
  TRY(json::value value, parse_json(text, limits));
  if (!value.is_object()) return fail(ErrorCode::bad_request, "the JSON must be an object");
  return std::move(value.as_object());
}

std::string to_json(const json::value& value) {
  std::string out;
  out.reserve(about_size(value));
  write(out, value);
  return out;
}

bool has_schema_type(const json::value& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  return type == "integer" && (value.is_int64() || value.is_uint64());
}

bool has_field(const json::object& object, std::string_view key) {
  const json::value* v = object.if_contains(key);
  return v && !v->is_null();
}

Result<std::string> string_field(const json::object& object, std::string_view key,
                                 std::string fallback) {
  const json::value* v = object.if_contains(key);
  if (!v || v->is_null()) return fallback;
  if (!v->is_string()) return field_error(key, fmt::format("\"{}\" must be a string", key));
  return std::string(v->as_string());
}

Result<bool> bool_field(const json::object& object, std::string_view key, bool fallback) {
  const json::value* v = object.if_contains(key);
  if (!v || v->is_null()) return fallback;
  if (!v->is_bool()) return field_error(key, fmt::format("\"{}\" must be true or false", key));
  return v->as_bool();
}

Result<std::int64_t> int_field(const json::object& object, std::string_view key,
                               std::int64_t fallback, std::int64_t min, std::int64_t max) {
  const json::value* v = object.if_contains(key);
  if (!v || v->is_null()) return fallback;
  std::int64_t n = 0;
  bool whole = false;
  if (v->is_int64()) {
    n = v->as_int64();
    whole = true;
  } else if (v->is_double() && v->as_double() == std::floor(v->as_double()) &&
             std::abs(v->as_double()) < 9e15) {
    n = static_cast<std::int64_t>(v->as_double());
    whole = true;
  }
  if (!whole || n < min || n > max)
    return field_error(key,
                       fmt::format("\"{}\" must be a whole number from {} to {}", key, min, max));
  return n;
}

Result<double> number_field(const json::object& object, std::string_view key, double fallback,
                            double min, double max) {
  const json::value* v = object.if_contains(key);
  if (!v || v->is_null()) return fallback;
  double d = 0;
  if (v->is_double()) {
    d = v->as_double();
  } else if (v->is_int64()) {
    d = static_cast<double>(v->as_int64());
  } else if (v->is_uint64()) {
    d = static_cast<double>(v->as_uint64());
  } else {
    return field_error(key, fmt::format("\"{}\" must be a number", key));
  }
  if (!(d >= min && d <= max))
    return field_error(key, fmt::format("\"{}\" must be a number from {} to {}", key, min, max));
  return d;
}

}  // namespace ponder
