#include "jobs/schema_fit.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/utf8.h"

namespace ponder::jobs {
namespace {

/// What Fit::keyword() tells apart.
enum class Word {
  type,
  one_of_values,
  constant,
  required,
  bound,
  multiple_of,
  length,
  items_count,
  unique,
  members_count,
  members,
  names,
  items,
  contains,
  negation,
  condition,
  all,
  any,
  one,
  dependencies,
  none,
};

constexpr std::array<std::pair<std::string_view, Word>, 30> kWords{{
    {"type", Word::type},
    {"enum", Word::one_of_values},
    {"const", Word::constant},
    {"required", Word::required},
    {"minimum", Word::bound},
    {"maximum", Word::bound},
    {"exclusiveMinimum", Word::bound},
    {"exclusiveMaximum", Word::bound},
    {"multipleOf", Word::multiple_of},
    {"minLength", Word::length},
    {"maxLength", Word::length},
    {"minItems", Word::items_count},
    {"maxItems", Word::items_count},
    {"uniqueItems", Word::unique},
    {"minProperties", Word::members_count},
    {"maxProperties", Word::members_count},
    {"properties", Word::members},
    {"additionalProperties", Word::members},
    {"propertyNames", Word::names},
    {"items", Word::items},
    {"additionalItems", Word::none},  // with items
    {"contains", Word::contains},
    {"not", Word::negation},
    {"if", Word::condition},
    {"then", Word::none},  // with if
    {"else", Word::none},
    {"allOf", Word::all},
    {"anyOf", Word::any},
    {"oneOf", Word::one},
    {"dependencies", Word::dependencies},
}};

Word word_of(std::string_view name) {
  const auto found =
      std::find_if(kWords.begin(), kWords.end(), [&](const auto& w) { return w.first == name; });
  return found == kWords.end() ? Word::none : found->second;
}

/// A number as it compares with others of its kind: a whole one exactly, whatever its spelling.
json::value plain_number(const json::value& value) {
  constexpr double kEnd = 18446744073709551616.0;  // 2^64
  if (value.is_uint64() && value.get_uint64() <= INT64_MAX)
    return static_cast<std::int64_t>(value.get_uint64());
  if (!value.is_double()) return value;
  const double d = value.get_double();
  if (d != std::floor(d) || d < -kEnd / 2 || d >= kEnd) return value;
  if (d < kEnd / 2) return static_cast<std::int64_t>(d);
  return static_cast<std::uint64_t>(d);
}

bool is_multiple(const json::value& value, const json::value& of) {
  const json::value a = plain_number(value), b = plain_number(of);
  if (a.is_int64() && b.is_int64() && b.get_int64() != -1)
    return a.get_int64() % b.get_int64() == 0;
  const double divisor = b.to_number<double>();
  return std::fabs(std::remainder(a.to_number<double>(), divisor)) <=
         std::numeric_limits<double>::epsilon() * std::max(1.0, std::fabs(divisor));
}

/// Once its steps are spent, nothing fits any more and no answer means anything: what still runs
/// comes to its end at once.
class Fit {
 public:
  explicit Fit(std::int64_t steps) : steps_(steps) {}

  bool schema(const json::value& node, const json::value& value) {
    if (!spend(1)) return false;
    if (node.is_bool()) return node.get_bool() || no("nothing is allowed here");
    const json::object& words = node.get_object();
    return std::all_of(words.begin(), words.end(), [&](const auto& member) {
      return spend(1) && keyword(words, member.key(), member.value(), value);
    });
  }

  bool is_spent() const { return steps_ < 0; }
  const std::string& problem() const { return problem_; }

 private:
  bool spend(std::size_t steps) {
    steps_ = is_spent() ? -1 : steps_ - static_cast<std::int64_t>(steps);
    return !is_spent();
  }
  bool spend_on(std::string_view text) { return spend(1 + text.size() / 32); }

  /// Says why, unless another way may still fit or it was said before.
  bool no(std::string_view why) {
    if (!is_asked_why()) return false;
    for (const auto& [name, index] : path_) {
      problem_ += '/';
      problem_ += index == kNamed ? std::string(name.substr(0, 100)) : std::to_string(index);
      if (problem_.size() > 200) break;
    }
    problem_ += problem_.empty() ? "" : ": ";
    problem_ += why.substr(0, 200);
    return false;
  }

  bool is_asked_why() const { return quiet_ == 0 && problem_.empty(); }
  bool beyond(std::string_view name, const json::value& limit) {
    return is_asked_why() && no(fmt::format("its \"{}\" is {}", name, to_json(limit)));
  }

  bool part(const json::value& node, const json::value& value, std::string_view name,
            std::size_t index) {
    path_.emplace_back(name, index);
    const bool fits = schema(node, value);
    path_.pop_back();
    return fits;
  }
  bool fits_quietly(const json::value& node, const json::value& value) {
    ++quiet_;
    const bool fits = schema(node, value);
    --quiet_;
    return fits;
  }
  template <class Each>
  std::size_t count_fitting(const json::array& nodes, const json::value& value, Each enough) {
    std::size_t fitting = 0;
    for (const json::value& node : nodes)
      if (fits_quietly(node, value) && enough(++fitting)) break;
    return fitting;
  }

  bool has(const json::object& object, std::string_view name) {
    return spend_on(name) && object.contains(name);
  }

  bool keyword(const json::object& node, std::string_view name, const json::value& wanted,
               const json::value& value) {
    const json::array* array = value.if_array();
    const json::object* object = value.if_object();
    switch (word_of(name)) {
      case Word::none:
        return true;
      case Word::type:
        return type(wanted, value);
      case Word::one_of_values: {
        const json::array& all = wanted.get_array();
        return std::any_of(all.begin(), all.end(),
                           [&](const auto& v) { return equal(v, value); }) ||
               no("it is not one of the values of \"enum\"");
      }
      case Word::constant:
        return equal(wanted, value) || no("it is not the value of \"const\"");
      case Word::required:
        return !object || has_all(*object, wanted.get_array());
      case Word::bound:
        return bound(name, wanted, value);
      case Word::multiple_of:
        // The remainder of a huge number and a tiny one takes a thousand rounds.
        return !value.is_number() || (spend(32) && is_multiple(value, wanted)) ||
               beyond(name, wanted);
      case Word::length:
        if (!value.is_string()) return true;
        return spend_on(value.get_string()) &&
               count(name, wanted, static_cast<double>(count_code_points(value.get_string())));
      case Word::items_count:
        return !array || count(name, wanted, static_cast<double>(array->size()));
      case Word::members_count:
        return !object || count(name, wanted, static_cast<double>(object->size()));
      case Word::unique:
        return !array || !wanted.get_bool() || unique(*array) ||
               no("two of its entries are the same");
      case Word::members:
        return !object || members(node, name == "properties" ? nullptr : &wanted, *object);
      case Word::names:
        return !object || std::all_of(object->begin(), object->end(), [&](const auto& member) {
          return spend_on(member.key()) &&
                 part(wanted, json::value(member.key()), member.key(), kNamed);
        });
      case Word::items:
        return !array || items(node, wanted, *array);
      case Word::contains:
        return !array || std::any_of(array->begin(), array->end(), [&](const auto& entry) {
          return fits_quietly(wanted, entry);
        }) || no("none of its entries fits \"contains\"");
      case Word::negation:
        return !fits_quietly(wanted, value) || no("it fits what is under \"not\"");
      case Word::condition: {
        const json::value* then = node.if_contains(fits_quietly(wanted, value) ? "then" : "else");
        return !then || schema(*then, value);
      }
      case Word::all: {
        const json::array& all = wanted.get_array();
        return std::all_of(all.begin(), all.end(),
                           [&](const auto& each) { return schema(each, value); });
      }
      case Word::any:
        return count_fitting(wanted.get_array(), value, [](auto) { return true; }) > 0 ||
               no("it fits none of \"anyOf\"");
      case Word::one: {
        const std::size_t n =
            count_fitting(wanted.get_array(), value, [](auto so_far) { return so_far > 1; });
        return n == 1 ||
               no(n == 0 ? "it fits none of \"oneOf\"" : "it fits more than one of \"oneOf\"");
      }
      case Word::dependencies:
        return !object || dependencies(wanted.get_object(), value);
    }
    return true;
  }

  bool type(const json::value& wanted, const json::value& value) {
    if (const json::string* one = wanted.if_string())
      return has_schema_type(value, *one) ||
             (is_asked_why() && no(fmt::format("it is not of type \"{}\"", one->c_str())));
    const json::array& types = wanted.get_array();
    if (!spend(types.size())) return false;
    return std::any_of(types.begin(), types.end(),
                       [&](const auto& t) { return has_schema_type(value, t.get_string()); }) ||
           no("it is of none of the types of \"type\"");
  }

  bool bound(std::string_view name, const json::value& wanted, const json::value& value) {
    if (!value.is_number()) return true;
    const int order = compare(value, wanted);
    const bool fits = name == "minimum"            ? order >= 0
                      : name == "maximum"          ? order <= 0
                      : name == "exclusiveMinimum" ? order > 0
                                                   : order < 0;
    return fits || beyond(name, wanted);
  }

  bool count(std::string_view name, const json::value& wanted, double n) {
    const double limit = wanted.to_number<double>();
    return (name.starts_with("min") ? n >= limit : n <= limit) || beyond(name, wanted);
  }

  bool has_all(const json::object& object, const json::array& names) {
    return std::all_of(names.begin(), names.end(), [&](const auto& name) {
      return has(object, name.get_string()) ||
             (is_asked_why() &&
              no(fmt::format("the member \"{}\" is missing", name.get_string().c_str())));
    });
  }

  /// Those under "properties", else the others, which all are to fit `rest`.
  bool members(const json::object& node, const json::value* rest, const json::object& object) {
    const json::value* known = node.if_contains("properties");
    return std::all_of(object.begin(), object.end(), [&](const auto& member) {
      if (!spend_on(member.key())) return false;
      const json::value* own = known ? known->get_object().if_contains(member.key()) : nullptr;
      const json::value* its = !rest ? own : own ? nullptr : rest;
      return !its || part(*its, member.value(), member.key(), kNamed);
    });
  }

  bool items(const json::object& node, const json::value& wanted, const json::array& array) {
    const json::array* each = wanted.if_array();
    const json::value* rest = each ? node.if_contains("additionalItems") : &wanted;
    for (std::size_t i = 0; i < array.size(); ++i) {
      const json::value* its = each && i < each->size() ? &(*each)[i] : rest;
      if (!its) break;
      if (!part(*its, array[i], {}, i)) return false;
    }
    return true;
  }

  bool dependencies(const json::object& wanted, const json::value& value) {
    const json::object& object = value.get_object();
    return std::all_of(wanted.begin(), wanted.end(), [&](const auto& member) {
      if (!has(object, member.key())) return true;
      const json::array* names = member.value().if_array();
      return names ? has_all(object, *names) : schema(member.value(), value);
    });
  }

  bool equal(const json::value& a, const json::value& b) {
    if (!spend(1)) return false;
    if (a.is_number() && b.is_number()) return compare(a, b) == 0;
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
      case json::kind::string:
        if (a.get_string().size() != b.get_string().size()) return false;
        return spend_on(a.get_string()) && a.get_string() == b.get_string();
      case json::kind::array:
        return std::equal(a.get_array().begin(), a.get_array().end(), b.get_array().begin(),
                          b.get_array().end(),
                          [&](const auto& x, const auto& y) { return equal(x, y); });
      case json::kind::object:
        return a.get_object().size() == b.get_object().size() &&
               std::all_of(a.get_object().begin(), a.get_object().end(), [&](const auto& member) {
                 if (!spend_on(member.key())) return false;
                 const json::value* other = b.get_object().if_contains(member.key());
                 return other && equal(member.value(), *other);
               });
      default:
        return a == b;
    }
  }

  static int compare(const json::value& a, const json::value& b) {
    const json::value x = plain_number(a), y = plain_number(b);
    const auto order = [](auto l, auto r) { return l < r ? -1 : l > r ? 1 : 0; };
    if (x.is_int64() && y.is_int64()) return order(x.get_int64(), y.get_int64());
    if (x.is_uint64() && y.is_uint64()) return order(x.get_uint64(), y.get_uint64());
    // A uint64 that is left is above each int64.
    if (x.is_uint64() && y.is_int64()) return 1;
    if (x.is_int64() && y.is_uint64()) return -1;
    return order(x.to_number<double>(), y.to_number<double>());
  }

  /// By sorting what is the same text for the same value: each with each would be quadratic.
  bool unique(const json::array& array) {
    std::vector<std::string> texts;
    std::size_t bytes = 0;
    for (const json::value& entry : array) {
      texts.emplace_back();
      if (!write_plainly(entry, texts.back())) return false;
      bytes += texts.back().size();
    }
    std::size_t rounds = 1;
    while ((array.size() >> rounds) > 0)
      ++rounds;
    if (!spend(rounds * (array.size() + bytes / 32))) return false;
    std::sort(texts.begin(), texts.end());
    return std::adjacent_find(texts.begin(), texts.end()) == texts.end();
  }

  bool write_plainly(const json::value& value, std::string& out) {
    if (!spend(value.is_string() ? 2 + value.get_string().size() / 8 : 2)) return false;
    if (const json::array* array = value.if_array()) {
      out += '[';
      for (const json::value& entry : *array) {
        if (!write_plainly(entry, out)) return false;
        out += ',';
      }
      out += ']';
    } else if (const json::object* object = value.if_object()) {
      std::vector<std::string_view> keys;
      for (const auto& member : *object) {
        if (!spend(4 + member.key().size() / 4)) return false;  // for being sorted as well
        keys.push_back(member.key());
      }
      std::sort(keys.begin(), keys.end());
      out += '{';
      for (const std::string_view key : keys) {
        out += to_json(json::value(key)) + ':';
        if (!write_plainly(object->at(key), out)) return false;
        out += ',';
      }
      out += '}';
    } else {
      out += to_json(value.is_number() ? plain_number(value) : value);
    }
    return true;
  }

  static constexpr std::size_t kNamed = SIZE_MAX;  ///< a member, not an entry

  std::int64_t steps_;
  int quiet_ = 0;
  std::string problem_;
  std::vector<std::pair<std::string_view, std::size_t>> path_;
};

tl::unexpected<Error> bad_keyword(std::string_view word, std::string_view what) {
  Error error{ErrorCode::bad_request, fmt::format("the schema's \"{}\" must be {}", word, what)};
  error.param = "schema";
  return fail(std::move(error));
}

bool are_texts(const json::value& value) {
  return value.is_array() &&
         std::all_of(value.get_array().begin(), value.get_array().end(),
                     [](const json::value& entry) { return entry.is_string(); });
}
}  // namespace

Result<void> check_keyword(std::string_view word, const json::value& value) {
  switch (word_of(word)) {
    case Word::type:
      if (!value.is_string() && !are_texts(value)) return bad_keyword(word, "a type or a list");
      break;
    case Word::one_of_values:
      if (!value.is_array()) return bad_keyword(word, "a list");
      break;
    case Word::required:
      if (!are_texts(value)) return bad_keyword(word, "a list of names");
      break;
    case Word::bound:
      if (!value.is_number()) return bad_keyword(word, "a number");
      break;
    case Word::multiple_of:
      if (!value.is_number() || value.to_number<double>() <= 0)
        return bad_keyword(word, "a number above 0");
      break;
    case Word::length:
    case Word::items_count:
    case Word::members_count:
      if (!value.is_number() || value.to_number<double>() < 0)
        return bad_keyword(word, "a number that is not negative");
      break;
    case Word::unique:
      if (!value.is_bool()) return bad_keyword(word, "true or false");
      break;
    default:
      break;
  }
  return {};
}

Result<void> value_fits_schema(const json::value& compiled, const json::value& value,
                               std::int64_t max_steps) {
  Fit fit(max_steps);
  const bool fits = fit.schema(compiled, value);
  if (fit.is_spent())
    return fail(ErrorCode::too_large,
                "its check against the schema was given up, for it takes too long",
                "use a simpler schema, or ask for less in one answer");
  if (fits) return {};
  return fail(ErrorCode::bad_request, fit.problem());
}

}  // namespace ponder::jobs
