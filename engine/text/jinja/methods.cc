// The methods of strings, dicts, lists and of `loop`.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "engine/base/utf8.h"
#include "engine/text/jinja/callable.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/text_operations.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

using Texts = std::vector<MarkedText>;

Outcome<const MarkedText*> text_argument(const Bound& args, std::size_t i, std::string_view what) {
  const Value* value = args[i];
  if (!value || !value->text())
    return fault(fmt::format("{} must be a str, not a {}", what,
                             value ? type_name(*value) : "missing argument"));
  return value->text();
}

/// The characters to strip or the separator: absent when not given or none.
Outcome<std::optional<std::string_view>> optional_text(const Bound& args, std::size_t i) {
  if (!args[i] || args[i]->is_none()) return std::nullopt;
  TRY(const MarkedText* const text, text_argument(args, i, "the argument"));
  return std::optional<std::string_view>(text->bytes());
}

Outcome<Value> list_of(Context& c, Texts texts) {
  TRY_VOID(c.meter().step(static_cast<std::int64_t>(texts.size())));
  std::vector<Value> items;
  items.reserve(texts.size());
  for (MarkedText& text : texts) {
    TRY(Value item, c.maker().text(std::move(text)));
    items.push_back(std::move(item));
  }
  return c.maker().list(std::move(items));
}

Outcome<Value> strip_sides(Context& c, const Value& self, const Bound& args, bool left,
                           bool right) {
  TRY(const auto chars, optional_text(args, 0));
  const std::size_t set = chars ? chars->size() + 1 : 1;
  TRY_VOID(c.meter().work(self.text()->size() * set));
  return c.maker().text(strip(*self.text(), chars, left, right));
}
Outcome<Value> do_strip(Context& c, const Value& self, const Bound& args) {
  return strip_sides(c, self, args, true, true);
}
Outcome<Value> do_lstrip(Context& c, const Value& self, const Bound& args) {
  return strip_sides(c, self, args, true, false);
}
Outcome<Value> do_rstrip(Context& c, const Value& self, const Bound& args) {
  return strip_sides(c, self, args, false, true);
}

Outcome<Value> do_split(Context& c, const Value& self, const Bound& args) {
  TRY(const auto separator, optional_text(args, 0));
  TRY(const std::int64_t limit, args.integer(1, -1));
  if (separator && separator->empty()) return fault("split() with an empty separator");
  TRY(Texts parts, split(c.meter(), *self.text(), separator, limit));
  return list_of(c, std::move(parts));
}
Outcome<Value> do_rsplit(Context& c, const Value& self, const Bound& args) {
  TRY(const auto separator, optional_text(args, 0));
  TRY(const std::int64_t limit, args.integer(1, -1));
  if (!separator || separator->empty()) return fault("rsplit() needs a separator");
  TRY(Texts parts, split_from_right(c.meter(), *self.text(), *separator, limit));
  return list_of(c, std::move(parts));
}
Outcome<Value> do_splitlines(Context& c, const Value& self, const Bound&) {
  TRY(Texts lines, split_lines(c.meter(), *self.text()));
  return list_of(c, std::move(lines));
}

/// startswith and endswith, of a string or any of a tuple.
Outcome<Value> has_affix(const Value& self, const Bound& args, bool at_start) {
  const std::string& text = self.text()->bytes();
  const auto matches = [&](const MarkedText& affix) {
    const std::string& a = affix.bytes();
    if (a.size() > text.size()) return false;
    return text.compare(at_start ? 0 : text.size() - a.size(), a.size(), a) == 0;
  };
  const List* many = args[0] ? args[0]->list() : nullptr;
  if (!many) {
    TRY(const MarkedText* const affix, text_argument(args, 0, "the argument"));
    return Value(matches(*affix));
  }
  for (const Value& each : many->items) {
    if (!each.text()) return fault("startswith() and endswith() need strings");
    if (matches(*each.text())) return Value(true);
  }
  return Value(false);
}
Outcome<Value> do_startswith(Context&, const Value& self, const Bound& args) {
  return has_affix(self, args, true);
}
Outcome<Value> do_endswith(Context&, const Value& self, const Bound& args) {
  return has_affix(self, args, false);
}
Outcome<Value> do_removeprefix(Context& c, const Value& self, const Bound& args) {
  TRY(const Value has, has_affix(self, args, true));
  const MarkedText& text = *self.text();
  return truth(has) && args[0]->text()
             ? c.maker().text(text.slice(args[0]->text()->size(), text.size()))
             : Outcome<Value>(self);
}
Outcome<Value> do_removesuffix(Context& c, const Value& self, const Bound& args) {
  TRY(const Value has, has_affix(self, args, false));
  const MarkedText& text = *self.text();
  return truth(has) && args[0]->text()
             ? c.maker().text(text.slice(0, text.size() - args[0]->text()->size()))
             : Outcome<Value>(self);
}

Outcome<Value> do_replace(Context& c, const Value& self, const Bound& args) {
  TRY(const MarkedText* const from, text_argument(args, 0, "what replace() looks for"));
  TRY(const MarkedText* const to, text_argument(args, 1, "what replace() puts in"));
  TRY(const std::int64_t count, args.integer(2, -1));
  TRY(MarkedText replaced, replace(c.meter(), *self.text(), *from, *to, count));
  return c.maker().text(std::move(replaced));
}

using Mapping = MarkedText (*)(const MarkedText&);
template <Mapping map>
Outcome<Value> do_map(Context& c, const Value& self, const Bound&) {
  TRY_VOID(c.meter().work(12 * self.text()->size()));
  return c.maker().text(map(*self.text()));
}

Outcome<std::size_t> find_in(Context& c, const Value& self, const Bound& args) {
  TRY(const MarkedText* const part, text_argument(args, 0, "what is looked for"));
  TRY_VOID(c.meter().work(4 * self.text()->size() + 4 * part->size()));
  return find_text(self.text()->bytes(), part->bytes(), 0);
}
Outcome<Value> do_find(Context& c, const Value& self, const Bound& args) {
  TRY(const std::size_t found, find_in(c, self, args));
  if (found == std::string_view::npos) return Value(Int{-1});
  return Value(Int{count_code_points(std::string_view(self.text()->bytes()).substr(0, found))});
}
Outcome<Value> do_index_text(Context& c, const Value& self, const Bound& args) {
  TRY(Value found, do_find(c, self, args));
  if (*found.get<Int>() < 0) return fault("index(): the part is not there");
  return found;
}
Outcome<Value> do_count_text(Context& c, const Value& self, const Bound& args) {
  TRY(const MarkedText* const part, text_argument(args, 0, "what is counted"));
  if (part->empty()) return Value(Int{count_code_points(self.text()->bytes()) + 1});
  TRY_VOID(c.meter().work(8 * self.text()->size()));
  Int count = 0;
  for (std::size_t at = 0;
       (at = find_text(self.text()->bytes(), part->bytes(), at)) != std::string_view::npos;
       at += part->size())
    ++count;
  return Value(count);
}

Outcome<Value> do_join(Context& c, const Value& self, const Bound& args) {
  if (!args[0]) return fault("join() needs a list");
  TRY(const ListPointer items, iterate(c.maker(), *args[0]));
  MarkedText joined;
  bool first = true;
  for (const Value& item : items->items) {
    if (!item.text()) return fault(fmt::format("join() of a {}", type_name(item)));
    TRY_VOID(c.meter().step());
    TRY_VOID(c.meter().length(joined.size() + item.text()->size() + self.text()->size()));
    if (!first) joined.append(*self.text());
    first = false;
    joined.append(*item.text());
  }
  return c.maker().text(std::move(joined));
}

/// isdigit, isalpha, ...: every character passes and there is one.
template <class Passes>
Outcome<Value> all_characters(Context& c, const Value& self, Passes passes) {
  const std::string& text = self.text()->bytes();
  TRY_VOID(c.meter().work(4 * text.size()));
  return Value(!text.empty() && std::all_of(text.begin(), text.end(), passes));
}
Outcome<Value> do_isdigit(Context& c, const Value& self, const Bound&) {
  return all_characters(c, self, [](char b) { return b >= '0' && b <= '9'; });
}
Outcome<Value> do_isspace(Context&, const Value& self, const Bound&) {
  const std::string& text = self.text()->bytes();
  return Value(!text.empty() && leading_space(text) == text.size());
}

// --- dicts ---

Outcome<Value> view(Context& c, const Value& self, List::Kind kind) {
  const Dict& dict = *self.dict();
  TRY_VOID(c.meter().step(static_cast<std::int64_t>(dict.entries.size())));
  std::vector<Value> items;
  items.reserve(dict.entries.size());
  for (const auto& [key, value] : dict.entries) {
    if (kind == List::Kind::dict_items) {
      TRY(Value pair, c.maker().list({key, value}, List::Kind::tuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(kind == List::Kind::dict_keys ? key : value);
    }
  }
  return c.maker().list(std::move(items), kind);
}
Outcome<Value> do_items(Context& c, const Value& self, const Bound&) {
  return view(c, self, List::Kind::dict_items);
}
Outcome<Value> do_keys(Context& c, const Value& self, const Bound&) {
  return view(c, self, List::Kind::dict_keys);
}
Outcome<Value> do_values(Context& c, const Value& self, const Bound&) {
  return view(c, self, List::Kind::dict_values);
}
Outcome<Value> do_get(Context& c, const Value& self, const Bound& args) {
  if (!args[0]) return fault("get() needs a key");
  TRY(const Value* const found, self.dict()->find(c.meter(), *args[0]));
  if (found) return *found;
  return args[1] ? *args[1] : Value(None{});
}
Outcome<Value> do_copy(Context&, const Value& self, const Bound&) {
  return self;
}
Outcome<Value> refuse_change(Context&, const Value&, const Bound&) {
  return fault("a template may not change a list or dict");
}

// --- lists ---

Outcome<Value> do_count_list(Context& c, const Value& self, const Bound& args) {
  if (!args[0]) return fault("count() needs a value");
  Int count = 0;
  for (const Value& item : self.list()->items) {
    TRY(const bool same, equal(c.meter(), item, *args[0]));
    count += same ? 1 : 0;
  }
  return Value(count);
}
Outcome<Value> do_index_list(Context& c, const Value& self, const Bound& args) {
  if (!args[0]) return fault("index() needs a value");
  for (std::size_t i = 0; i < self.list()->items.size(); ++i) {
    TRY(const bool same, equal(c.meter(), self.list()->items[i], *args[0]));
    if (same) return Value(static_cast<Int>(i));
  }
  return fault("index(): the value is not in the list");
}

// --- loop ---

LoopState& state_of(const Value& self) {
  return **self.get<std::shared_ptr<LoopState>>();
}

Outcome<Value> do_cycle(Context&, const Value& self, const Bound& args) {
  const auto& values = args.all().positional;
  if (values.empty()) return fault("loop.cycle() needs values");
  return values[state_of(self).at % values.size()];
}
Outcome<Value> do_changed(Context& c, const Value& self, const Bound& args) {
  LoopState& state = state_of(self);
  TRY(const Value now, c.maker().list(args.all().positional, List::Kind::tuple));
  TRY(std::string shown, repr(c.meter(), now));
  const bool changed = state.changed != shown;
  state.changed = std::move(shown);
  return Value(changed);
}

const Callable kTextMethods[] = {
    {"startswith", "prefix", do_startswith},
    {"endswith", "suffix", do_endswith},
    {"strip", "chars", do_strip},
    {"lstrip", "chars", do_lstrip},
    {"rstrip", "chars", do_rstrip},
    {"split", "sep,maxsplit", do_split},
    {"rsplit", "sep,maxsplit", do_rsplit},
    {"splitlines", "", do_splitlines},
    {"replace", "old,new,count", do_replace},
    {"upper", "", do_map<to_upper>},
    {"lower", "", do_map<to_lower>},
    {"title", "", do_map<title>},
    {"capitalize", "", do_map<capitalize>},
    {"find", "part", do_find},
    {"index", "part", do_index_text},
    {"count", "part", do_count_text},
    {"join", "items", do_join},
    {"removeprefix", "prefix", do_removeprefix},
    {"removesuffix", "suffix", do_removesuffix},
    {"isdigit", "", do_isdigit},
    {"isspace", "", do_isspace},
};
// The methods that would change a dict are here because they hide a key of the same name, as they
// do in Jinja2.
const Callable kDictMethods[] = {
    {"items", "", do_items},
    {"keys", "", do_keys},
    {"values", "", do_values},
    {"get", "key,default", do_get},
    {"copy", "", do_copy},
    {"pop", "*", refuse_change},
    {"popitem", "*", refuse_change},
    {"update", "*", refuse_change},
    {"clear", "*", refuse_change},
    {"setdefault", "*", refuse_change},
    {"fromkeys", "*", refuse_change},
};
const Callable kListMethods[] = {
    {"count", "value", do_count_list},
    {"index", "value", do_index_list},
    {"copy", "", do_copy},
    {"append", "*", refuse_change},
    {"extend", "*", refuse_change},
    {"insert", "*", refuse_change},
    {"pop", "*", refuse_change},
    {"remove", "*", refuse_change},
    {"reverse", "*", refuse_change},
    {"sort", "*", refuse_change},
    {"clear", "*", refuse_change},
};
const Callable kLoopMethods[] = {
    {"cycle", "*", do_cycle},
    {"changed", "*", do_changed},
};

template <std::size_t n>
const Callable* in_table(const Callable (&table)[n], std::string_view name) {
  for (const Callable& each : table)
    if (each.name == name) return &each;
  return nullptr;
}

}  // namespace

const Callable* find_method(const Value& value, std::string_view name) {
  if (value.text()) return in_table(kTextMethods, name);
  if (value.dict()) return in_table(kDictMethods, name);
  if (const List* list = value.list()) {
    const bool plain = list->kind == List::Kind::list || list->kind == List::Kind::tuple;
    return plain ? in_table(kListMethods, name) : nullptr;
  }
  if (value.get<std::shared_ptr<LoopState>>()) return in_table(kLoopMethods, name);
  return nullptr;
}

}  // namespace ponder::text::jinja
