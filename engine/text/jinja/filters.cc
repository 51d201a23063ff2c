// The table of filters. Each is what Jinja2's filter of that name does, for the values that
// templates have; filters that take other filters or tests are at the end.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/text/jinja/callable.h"
#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/sequence_filters.h"
#include "engine/text/jinja/text_operations.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

/// The value as a string, which most string filters take first.
Outcome<TextPointer> as_text(Context& c, const Value& value) {
  TRY(const Value text, to_text(c.maker(), value));
  return *text.get<TextPointer>();
}

using Mapping = MarkedText (*)(const MarkedText&);
template <Mapping map>
Outcome<Value> do_map_text(Context& c, const Value& self, const Bound&) {
  TRY(const TextPointer text, as_text(c, self));
  TRY_VOID(c.meter().work(12 * text->size()));
  return c.maker().text(map(*text));
}

Outcome<Value> do_trim(Context& c, const Value& self, const Bound& args) {
  TRY(const TextPointer text, as_text(c, self));
  std::optional<std::string_view> chars;
  if (args[0] && args[0]->text()) chars = args[0]->text()->bytes();
  TRY_VOID(c.meter().work(text->size() * (chars ? chars->size() + 1 : 1)));
  return c.maker().text(strip(*text, chars, true, true));
}

Outcome<Value> do_string(Context& c, const Value& self, const Bound&) {
  return to_text(c.maker(), self);
}

Outcome<Value> do_replace(Context& c, const Value& self, const Bound& args) {
  if (!args[0] || !args[1]) return fault("replace needs what to look for and what to put in");
  TRY(const TextPointer text, as_text(c, self));
  TRY(const TextPointer from, as_text(c, *args[0]));
  TRY(const TextPointer to, as_text(c, *args[1]));
  TRY(const std::int64_t count, args.integer(2, -1));
  TRY(MarkedText replaced, replace(c.meter(), *text, *from, *to, count));
  return c.maker().text(std::move(replaced));
}

Outcome<Value> do_escape(Context& c, const Value& self, const Bound&) {
  TRY(const TextPointer text, as_text(c, self));
  TRY_VOID(c.meter().length(6 * text->size()));
  MarkedText out;
  text->for_each_stretch([&](std::string_view stretch, Origin origin) {
    for (const char b : stretch) {
      switch (b) {
        case '&':
          out.append("&amp;", origin);
          break;
        case '<':
          out.append("&lt;", origin);
          break;
        case '>':
          out.append("&gt;", origin);
          break;
        case '\'':
          out.append("&#39;", origin);
          break;
        case '"':
          out.append("&#34;", origin);
          break;
        default:
          out.append(std::string_view(&b, 1), origin);
      }
    }
  });
  return c.maker().text(std::move(out));
}

Outcome<Value> do_indent(Context& c, const Value& self, const Bound& args) {
  const MarkedText* text = self.text();
  if (!text) return fault(fmt::format("indent needs a str, not a {}", type_name(self)));
  TRY(const bool first, args.flag(1, false));
  TRY(const bool blank, args.flag(2, false));
  MarkedText indention;
  if (args[0] && args[0]->text()) {
    indention = *args[0]->text();
  } else {
    TRY(const std::int64_t width, args.integer(0, 4));
    TRY_VOID(c.meter().length(static_cast<std::size_t>(std::max<std::int64_t>(0, width))));
    indention =
        MarkedText(std::string(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' '),
                   Origin::template_source);
  }
  MarkedText whole = *text;
  whole.append("\n", Origin::template_source);
  TRY(const std::vector<MarkedText> lines, split_lines(c.meter(), whole));
  MarkedText out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i) out.append("\n", Origin::template_source);
    TRY_VOID(c.meter().length(out.size() + indention.size() + lines[i].size()));
    if (i == 0 ? first : blank || !lines[i].empty()) out.append(indention);
    out.append(lines[i]);
  }
  return c.maker().text(std::move(out));
}

Outcome<Value> do_length(Context& c, const Value& self, const Bound&) {
  if (const MarkedText* text = self.text()) {
    TRY_VOID(c.meter().work(4 * text->size()));
    return Value(Int{count_code_points(text->bytes())});
  }
  if (const Dict* dict = self.dict()) return Value(static_cast<Int>(dict->entries.size()));
  const List* list = self.list();
  if (list && list->kind != List::Kind::generator)
    return Value(static_cast<Int>(list->items.size()));
  if (self.is_undefined()) return Value(Int{0});
  if (const auto* loop = self.get<std::shared_ptr<LoopState>>())
    return Value(static_cast<Int>((*loop)->items->items.size()));
  return fault(fmt::format("a {} has no length", type_name(self)));
}

Outcome<Value> do_default(Context&, const Value& self, const Bound& args) {
  TRY(const bool any_false, args.flag(1, false));
  if (!self.is_undefined() && !(any_false && !truth(self))) return self;
  return args[0] ? *args[0]
                 : Value(TextPointer(std::make_shared<MarkedText>("", Origin::template_source)));
}

Outcome<Value> do_tojson(Context& c, const Value& self, const Bound& args) {
  JsonStyle style;
  TRY(style.ascii, args.flag(0, false));
  if (args[1] && !args[1]->is_none()) {
    style.indented = true;
    style.item_separator.pop_back();  // the blank: a line break follows
    if (const MarkedText* text = args[1]->text()) {
      style.indent = text->bytes();
    } else {
      TRY(const std::int64_t width, args.integer(1, 0));
      if (width > 64) return fault("tojson: an indent of more than 64");
      style.indent.assign(static_cast<std::size_t>(std::max<std::int64_t>(0, width)), ' ');
    }
  }
  if (args[2] && !args[2]->is_none()) {
    const List* pair = args[2]->list();
    if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text())
      return fault("tojson: separators must be two strings");
    style.item_separator = pair->items[0].text()->bytes();
    style.key_separator = pair->items[1].text()->bytes();
  }
  TRY(style.sort_keys, args.flag(3, false));
  TRY(std::string json, dump_json(c.meter(), self, style));
  return c.maker().text(std::move(json));
}

// --- numbers ---

/// int(text, base) of Python: blanks around, a sign, underscores between digits.
bool parse_int(std::string_view text, int base, Int& out) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  bool negative = false;
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  const char marker = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
  if (marker && text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == marker)
    text.remove_prefix(2);
  Int value = 0;
  bool digit_before = false;
  for (const char b : text) {
    if (b == '_' && digit_before) {
      digit_before = false;
      continue;
    }
    const int lower = b | 0x20;
    const int digit = b >= '0' && b <= '9'           ? b - '0'
                      : lower >= 'a' && lower <= 'z' ? lower - 'a' + 10
                                                     : base;
    if (digit >= base || __builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value))
      return false;
    digit_before = true;
  }
  out = negative ? -value : value;
  return digit_before;
}

/// float(text) of Python, without underscores.
bool parse_double(std::string_view text, double& out) {
  text.remove_prefix(leading_space(text));
  text.remove_suffix(trailing_space(text));
  if (!text.empty() && text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return false;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), out);
  return read.ec == std::errc() && read.ptr == text.data() + text.size();
}

bool truncate_to_int(double d, Int& out) {
  if (!std::isfinite(d) || std::abs(d) > 1e37) return false;
  out = static_cast<Int>(d);
  return true;
}

Outcome<Value> do_int(Context&, const Value& self, const Bound& args) {
  if (self.is_undefined()) return fault("int of a value that is not defined");
  TRY(const std::int64_t base, args.integer(1, 10));
  if (base < 2 || base > 36) return fault("int: the base must be from 2 to 36");
  Int n = 0;
  double d = 0;
  if (const MarkedText* text = self.text()) {
    if (parse_int(text->bytes(), static_cast<int>(base), n)) return Value(n);
    if (parse_double(text->bytes(), d) && truncate_to_int(d, n)) return Value(n);
  } else if (self.as_int(n)) {
    return Value(n);
  } else if (self.as_double(d) && truncate_to_int(d, n)) {
    return Value(n);
  }
  return args[0] ? *args[0] : Value(Int{0});
}

Outcome<Value> do_float(Context&, const Value& self, const Bound& args) {
  if (self.is_undefined()) return fault("float of a value that is not defined");
  double d = 0;
  if (self.as_double(d)) return Value(d);
  if (self.text() && parse_double(self.text()->bytes(), d)) return Value(d);
  return args[0] ? *args[0] : Value(0.0);
}

Outcome<Value> do_abs(Context&, const Value& self, const Bound&) {
  Int n = 0;
  double d = 0;
  if (self.as_int(n)) return signed_value(n < 0, self);
  if (self.as_double(d)) return Value(std::abs(d));
  return fault(fmt::format("abs of a {}", type_name(self)));
}

/// round(d, precision) of Python: correctly rounded decimal digits, halves to even.
double round_half_even(double d, int precision) {
  if (!std::isfinite(d) || precision > 300) return d;
  if (precision >= 0) {
    // printf rounds the exact binary value, as Python does.
    const std::string digits = fmt::format("{:.{}f}", d, precision);
    double out = d;
    std::from_chars(digits.data(), digits.data() + digits.size(), out);
    return out;
  }
  const double scale = std::pow(10.0, -precision);
  return std::nearbyint(d / scale) * scale;
}

Outcome<Value> do_round(Context&, const Value& self, const Bound& args) {
  TRY(const std::int64_t precision, args.integer(0, 0));
  const std::string_view method =
      args[1] && args[1]->text() ? std::string_view(args[1]->text()->bytes()) : "common";
  Int n = 0;
  double d = 0;
  if (!self.as_double(d)) return fault(fmt::format("round of a {}", type_name(self)));
  const int digits = static_cast<int>(std::clamp<std::int64_t>(precision, -300, 300));
  if (method == "common") {
    // A whole number stays one, and rounding digits behind its point does nothing.
    if (self.as_int(n) && digits >= 0) return Value(n);
    return Value(round_half_even(d, digits));
  }
  if (method != "ceil" && method != "floor")
    return fault("round: the method must be common, ceil or floor");
  const double scale = std::pow(10.0, digits);
  return Value((method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale)) / scale);
}

Outcome<Value> do_wordcount(Context& c, const Value& self, const Bound&) {
  TRY(const TextPointer text, as_text(c, self));
  TRY(const auto words, split(c.meter(), *text, std::nullopt, -1));
  return Value(static_cast<Int>(words.size()));
}

Outcome<Value> do_center(Context& c, const Value& self, const Bound& args) {
  TRY(const TextPointer text, as_text(c, self));
  TRY(const std::int64_t width, args.integer(0, 80));
  const std::int64_t length = count_code_points(text->bytes());
  if (width <= length) return c.maker().text(*text);
  TRY_VOID(c.meter().length(static_cast<std::size_t>(width) + text->size()));
  const std::int64_t space = width - length;
  const std::int64_t left = space / 2 + (space & width & 1);  // as Python shares an odd blank
  MarkedText out(std::string(static_cast<std::size_t>(left), ' '), Origin::template_source);
  out.append(*text);
  out.append(std::string(static_cast<std::size_t>(space - left), ' '), Origin::template_source);
  return c.maker().text(std::move(out));
}

Outcome<Value> do_attr(Context& c, const Value& self, const Bound& args) {
  if (!args[0] || !args[0]->text()) return fault("attr needs a name");
  // Only what '.' would find as an attribute; a dict's keys are items.
  if (self.dict() && !find_method(self, args[0]->text()->bytes())) return Value();
  return c.attribute(self, args[0]->text()->bytes());
}

const Callable kFilters[] = {
    {"trim", "chars", do_trim},
    {"length", "", do_length},
    {"count", "", do_length},
    {"tojson", "ensure_ascii,indent,separators,sort_keys", do_tojson},
    {"string", "", do_string},
    {"safe", "", do_string},
    {"default", "default_value,boolean", do_default},
    {"d", "default_value,boolean", do_default},
    {"upper", "", do_map_text<to_upper>},
    {"lower", "", do_map_text<to_lower>},
    {"title", "", do_map_text<title_by_space>},
    {"capitalize", "", do_map_text<capitalize>},
    {"replace", "old,new,count", do_replace},
    {"escape", "", do_escape},
    {"e", "", do_escape},
    {"indent", "width,first,blank", do_indent},
    {"int", "default,base", do_int},
    {"float", "default", do_float},
    {"abs", "", do_abs},
    {"round", "precision,method", do_round},
    {"wordcount", "", do_wordcount},
    {"center", "width", do_center},
    {"attr", "name", do_attr},
};

}  // namespace

const Callable* find_filter(std::string_view name) {
  for (const Callable& filter : kFilters)
    if (filter.name == name) return &filter;
  return find_sequence_filter(name);
}

}  // namespace ponder::text::jinja
