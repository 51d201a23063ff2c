#include "engine/text/jinja/print.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/base/utf8.h"

namespace ponder::text::jinja {
namespace {

constexpr int kMaxNesting = 160;  // of values: 128 levels, and namespaces among them

/// str.isprintable() of one character: what repr() shows as it is.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

void repr_text(std::string_view text, std::string& out) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  out += quote;
  char32_t c = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto n = static_cast<std::size_t>(std::max(1, decode_utf8(text, i, c)));
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(i, n);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<unsigned>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<unsigned>(c));
    }
    i += n;
  }
  out += quote;
}

void dump_text(std::string_view text, bool ascii, std::string& out) {
  out += '"';
  char32_t c = 0;
  for (std::size_t i = 0; i < text.size();) {
    const auto n = static_cast<std::size_t>(std::max(1, decode_utf8(text, i, c)));
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\b':
        out += "\\b";
        break;
      default:
        if (c < 0x20 || (ascii && c >= 0x7F && c < 0x10000)) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else if (ascii && c >= 0x10000) {
          const auto rest = static_cast<unsigned>(c) - 0x10000;
          out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
        } else {
          out += text.substr(i, n);
        }
    }
    i += n;
  }
  out += '"';
}

class Printer {
 public:
  Printer(Meter& meter, std::string& out) : meter_(meter), out_(out) {}

  Outcome<void> repr(const Value& value, int depth) {
    TRY_VOID(meter_.step());
    if (depth > kMaxNesting) return fault("a value is nested too deeply to print");
    if (const MarkedText* text = value.text()) {
      TRY_VOID(meter_.work(8 * text->size()));
      repr_text(text->bytes(), out_);
    } else if (const List* list = value.list()) {
      TRY_VOID(repr_list(*list, depth));
    } else if (const Dict* dict = value.dict()) {
      TRY_VOID(repr_dict(*dict, depth));
    } else if (const bool* b = value.get<bool>()) {
      out_ += *b ? "True" : "False";
    } else if (const Int* n = value.get<Int>()) {
      out_ += format_int(*n);
    } else if (const double* d = value.get<double>()) {
      out_ += format_double(*d);
    } else if (value.is_none()) {
      out_ += "None";
    } else if (value.is_undefined()) {
      out_ += "Undefined";
    } else {
      out_ += '<';
      out_ += type_name(value);
      out_ += '>';
    }
    if (static_cast<std::int64_t>(out_.size()) > meter_.limits().output_bytes)
      return fault("the template makes a text of more than 16 MiB");
    return {};
  }

 private:
  Outcome<void> repr_list(const List& list, int depth) {
    using Kind = List::Kind;
    if (list.kind == Kind::range) {
      out_ += list.label;
      return {};
    }
    if (list.kind == Kind::generator) {
      out_ += "<generator>";
      return {};
    }
    const bool view = list.kind != Kind::list && list.kind != Kind::tuple;
    if (view) out_ += type_name_of(list.kind), out_ += '(';
    const bool tuple = list.kind == Kind::tuple;
    out_ += tuple ? '(' : '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_ += ", ";
      first = false;
      TRY_VOID(repr(item, depth + 1));
    }
    if (tuple && list.items.size() == 1) out_ += ',';
    out_ += tuple ? ')' : ']';
    if (view) out_ += ')';
    return {};
  }
  static std::string_view type_name_of(List::Kind kind) {
    if (kind == List::Kind::dict_keys) return "dict_keys";
    return kind == List::Kind::dict_values ? "dict_values" : "dict_items";
  }
  Outcome<void> repr_dict(const Dict& dict, int depth) {
    out_ += '{';
    bool first = true;
    for (const auto& [key, value] : dict.entries) {
      if (!first) out_ += ", ";
      first = false;
      TRY_VOID(repr(key, depth + 1));
      out_ += ": ";
      TRY_VOID(repr(value, depth + 1));
    }
    out_ += '}';
    return {};
  }

  Meter& meter_;
  std::string& out_;
};

class JsonPrinter {
 public:
  JsonPrinter(Meter& meter, const JsonStyle& style, std::string& out)
      : meter_(meter), style_(style), out_(out) {}

  Outcome<void> dump(const Value& value, int depth) {
    TRY_VOID(meter_.step());
    if (const MarkedText* text = value.text()) {
      TRY_VOID(meter_.work(8 * text->size()));
      dump_text(text->bytes(), style_.ascii, out_);
    } else if (const List* list = value.list()) {
      if (list->kind != List::Kind::list && list->kind != List::Kind::tuple) return not_json(value);
      TRY_VOID(dump_list(*list, depth));
    } else if (const Dict* dict = value.dict()) {
      TRY_VOID(dump_dict(*dict, depth));
    } else if (!dump_scalar(value)) {
      return not_json(value);
    }
    if (static_cast<std::int64_t>(out_.size()) > meter_.limits().output_bytes)
      return fault("the template makes a text of more than 16 MiB");
    return {};
  }

 private:
  static tl::unexpected<Fault> not_json(const Value& value) {
    return fault(fmt::format("a {} cannot be written as JSON", type_name(value)));
  }
  bool dump_scalar(const Value& value) {
    if (const bool* b = value.get<bool>()) return out_ += *b ? "true" : "false", true;
    if (const Int* n = value.get<Int>()) return out_ += format_int(*n), true;
    if (const double* d = value.get<double>()) {
      if (std::isnan(*d)) return out_ += "NaN", true;
      if (std::isinf(*d)) return out_ += *d < 0 ? "-Infinity" : "Infinity", true;
      return out_ += format_double(*d), true;
    }
    if (value.is_none()) return out_ += "null", true;
    return false;
  }
  void line(int depth) {
    if (!style_.indented) return;
    out_ += '\n';
    for (int i = 0; i < depth; ++i)
      out_ += style_.indent;
  }
  Outcome<void> dump_list(const List& list, int depth) {
    if (list.items.empty()) return out_ += "[]", Outcome<void>{};
    out_ += '[';
    bool first = true;
    for (const Value& item : list.items) {
      if (!first) out_ += style_.item_separator;
      first = false;
      line(depth + 1);
      TRY_VOID(dump(item, depth + 1));
    }
    line(depth);
    out_ += ']';
    return {};
  }
  Outcome<void> dump_key(const Value& key) {
    if (const MarkedText* text = key.text()) {
      TRY_VOID(meter_.work(8 * text->size()));
      dump_text(text->bytes(), style_.ascii, out_);
      return {};
    }
    out_ += '"';
    if (!dump_scalar(key)) return not_json(key);
    out_ += '"';
    return {};
  }
  Outcome<void> dump_dict(const Dict& dict, int depth) {
    if (dict.entries.empty()) return out_ += "{}", Outcome<void>{};
    std::vector<const std::pair<Value, Value>*> order;
    order.reserve(dict.entries.size());
    for (const auto& entry : dict.entries)
      order.push_back(&entry);
    if (style_.sort_keys) {
      for (const auto* entry : order)
        if (!entry->first.text()) return fault("sort_keys needs keys that are strings");
      TRY_VOID(meter_.step(static_cast<std::int64_t>(16 * order.size())));
      std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        return a->first.text()->bytes() < b->first.text()->bytes();
      });
    }
    out_ += '{';
    bool first = true;
    for (const auto* entry : order) {
      if (!first) out_ += style_.item_separator;
      first = false;
      line(depth + 1);
      TRY_VOID(dump_key(entry->first));
      out_ += style_.key_separator;
      TRY_VOID(dump(entry->second, depth + 1));
    }
    line(depth);
    out_ += '}';
    return {};
  }

  Meter& meter_;
  const JsonStyle& style_;
  std::string& out_;
};

}  // namespace

std::string format_int(Int n) {
  if (n == 0) return "0";
  const bool negative = n < 0;
  std::string digits;
  for (; n != 0; n /= 10) {
    const int digit = static_cast<int>(n % 10);
    digits += static_cast<char>('0' + (digit < 0 ? -digit : digit));
  }
  if (negative) digits += '-';
  std::reverse(digits.begin(), digits.end());
  return digits;
}

std::string format_double(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  std::string_view all(buffer, static_cast<std::size_t>(end - buffer));
  const bool negative = all.front() == '-';
  if (negative) all.remove_prefix(1);
  const std::size_t e = all.find('e');
  int exponent = 0;
  const std::string_view power = all.substr(e + 1);
  std::from_chars(power.data() + (power[0] == '+' ? 1 : 0), power.data() + power.size(), exponent);
  std::string digits(all.substr(0, 1));
  if (e > 2) digits += all.substr(2, e - 2);

  std::string out = negative ? "-" : "";
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += '.', out += digits.substr(1);
    out += fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else if (count <= exponent + 1) {
    out += digits + std::string(static_cast<std::size_t>(exponent + 1 - count), '0') + ".0";
  } else {
    out += digits.substr(0, static_cast<std::size_t>(exponent + 1)) + "." +
           digits.substr(static_cast<std::size_t>(exponent + 1));
  }
  return out;
}

Outcome<std::string> repr(Meter& meter, const Value& value) {
  std::string out;
  TRY_VOID(Printer(meter, out).repr(value, 0));
  return out;
}

Outcome<void> print(Meter& meter, const Value& value, MarkedText& out) {
  if (const MarkedText* text = value.text()) {
    TRY_VOID(meter.work(text->size()));
    out.append(*text);
  } else if (!value.is_undefined()) {
    TRY(const std::string printed, repr(meter, value));
    TRY_VOID(meter.work(printed.size()));
    out.append(printed, Origin::caller);
  }
  if (static_cast<std::int64_t>(out.size()) > meter.limits().output_bytes)
    return fault("the template makes a text of more than 16 MiB");
  return {};
}

Outcome<Value> to_text(ValueMaker& maker, const Value& value) {
  if (value.text()) return value;
  MarkedText text;
  TRY_VOID(print(maker.meter(), value, text));
  return maker.text(std::move(text));
}

Outcome<std::string> dump_json(Meter& meter, const Value& value, const JsonStyle& style) {
  std::string out;
  TRY_VOID(JsonPrinter(meter, style, out).dump(value, 0));
  TRY_VOID(meter.work(out.size()));
  return out;
}

}  // namespace ponder::text::jinja
