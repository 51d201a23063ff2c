#include "mcp/tools/arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "engine/base/utf8.h"

namespace ponder::mcp {
namespace {
using Kind = Argument::Kind;

constexpr std::array<std::string_view, 7> kEfforts{"none", "low", "medium", "xhigh",
                                                   "high", "max", "minimal"};

bool is_one_of(std::string_view word, std::span<const std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::optional<double> as_number(const json::value& v) {
  if (v.is_int64()) return static_cast<double>(v.get_int64());
  if (v.is_uint64()) return static_cast<double>(v.get_uint64());
  if (v.is_double()) return v.get_double();
  return std::nullopt;
}

bool is_in_range(double d, const Argument& a) {
  return d >= a.min && d <= a.max;
}

bool is_right(const Argument& a, const json::value& v) {
  switch (a.kind) {
    case Kind::text:
      return v.is_string() &&
             is_in_range(static_cast<double>(count_code_points(v.get_string())), a);
    case Kind::words:
      return v.is_string() && is_one_of(v.get_string(), a.words);
    case Kind::whole:
    case Kind::number: {
      const auto d = as_number(v);
      return d && is_in_range(*d, a) && (a.kind == Kind::number || *d == std::floor(*d));
    }
    case Kind::flag:
      return v.is_bool();
    case Kind::object:
      return v.is_object();
    case Kind::texts:
      return v.is_array() && is_in_range(static_cast<double>(v.get_array().size()), a) &&
             std::all_of(v.get_array().begin(), v.get_array().end(),
                         [](const json::value& each) { return each.is_string(); });
    case Kind::effort: {
      if (v.is_string()) return is_one_of(v.get_string(), kEfforts);
      const auto d = as_number(v);
      return d && *d == std::floor(*d) && is_in_range(*d, a);
    }
  }
  return false;
}

std::string range(const Argument& a, std::string_view unit) {
  if (a.max >= 1e15) return fmt::format("of at least {}{}", a.min, unit);
  return fmt::format("from {} to {}{}", a.min, a.max, unit);
}

std::string quoted(std::span<const std::string_view> words) {
  return fmt::format("\"{}\"", fmt::join(words, "\", \""));
}

std::string what_is_right(const Argument& a) {
  switch (a.kind) {
    case Kind::text:
      if (a.max >= 1e15) return a.min > 0 ? "a string that is not empty" : "a string";
      return fmt::format("a string of {} to {} characters", a.min, a.max);
    case Kind::words:
      return (a.words.size() > 1 ? "one of " : "") + quoted(a.words);
    case Kind::whole:
      return "a whole number " + range(a, "");
    case Kind::number:
      return "a number " + range(a, "");
    case Kind::flag:
      return "true or false";
    case Kind::object:
      return "an object";
    case Kind::texts:
      return fmt::format("an array of {} to {} strings", a.min, a.max);
    case Kind::effort:
      return "\"none\", \"low\", \"medium\" or \"xhigh\", or a whole number of thinking tokens";
  }
  return {};
}

std::string argument_list(std::span<const Argument> table) {
  std::vector<std::string> names;
  for (const Argument& a : table)
    names.push_back(std::string(a.name) + (a.required ? " (required)" : ""));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// `v` in a complaint, cut short.
std::string shown(const json::value& v) {
  const std::string text = to_json(v);
  const std::size_t end = byte_offset_of(text, 60);
  return text.substr(0, end) + (end < text.size() ? "..." : "");
}
}  // namespace

std::optional<std::string> check_arguments(std::string_view tool, std::span<const Argument> table,
                                           json::object& arguments) {
  json::object given;
  for (const auto& [name, value] : arguments)
    if (!value.is_null()) given[name] = value;
  arguments = std::move(given);

  std::vector<std::string> complaints;
  bool name_is_wrong = false;
  for (const auto& [key, value] : arguments) {
    const std::string_view name = key;
    const auto a = std::find_if(table.begin(), table.end(),
                                [&](const Argument& each) { return each.name == name; });
    if (a == table.end()) {
      complaints.push_back(
          fmt::format("there is no argument \"{}\".", name.substr(0, byte_offset_of(name, 60))));
      name_is_wrong = true;
    } else if (!is_right(*a, value)) {
      complaints.push_back(fmt::format("\"{}\" must be {}, not {}.{}{}", name, what_is_right(*a),
                                       shown(value), a->advice.empty() ? "" : " ", a->advice));
    }
    if (complaints.size() >= 10) break;
  }
  for (const Argument& a : table) {
    if (!a.required || arguments.contains(a.name)) continue;
    complaints.push_back(fmt::format("\"{}\" is missing.", a.name));
    name_is_wrong = true;
  }
  if (complaints.empty()) return std::nullopt;
  std::string text = fmt::format("{}: {}", tool, fmt::join(complaints, " "));
  if (name_is_wrong)
    text += table.empty() ? " It takes no arguments."
                          : fmt::format(" Its arguments are: {}.", argument_list(table));
  return text + " Correct this and call again.";
}

std::string text_argument(const json::object& arguments, std::string_view name) {
  const json::value* v = arguments.if_contains(name);
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

double number_argument(const json::object& arguments, std::string_view name, double fallback) {
  const json::value* v = arguments.if_contains(name);
  return v ? as_number(*v).value_or(fallback) : fallback;
}

std::int64_t whole_argument(const json::object& arguments, std::string_view name,
                            std::int64_t fallback) {
  const json::value* v = arguments.if_contains(name);
  return v ? static_cast<std::int64_t>(as_number(*v).value_or(static_cast<double>(fallback)))
           : fallback;
}

bool flag_argument(const json::object& arguments, std::string_view name) {
  const json::value* v = arguments.if_contains(name);
  return v && v->is_bool() && v->get_bool();
}

double bounded_wait(const json::object& arguments, double fallback, double bound,
                    std::string& note) {
  const double asked = number_argument(arguments, "wait_s", fallback);
  if (asked <= bound) return asked;
  add_note(note, fmt::format("wait_s was lowered from {} to {}", asked, bound));
  return bound;
}

void add_note(std::string& note, std::string_view more) {
  if (more.empty()) return;
  if (!note.empty()) note += "; ";
  note += more;
}

}  // namespace ponder::mcp
