#include "engine/text/jinja/sequence_filters.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "engine/text/jinja/operators.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/tests.h"
#include "engine/text/jinja/text_operations.h"

namespace ponder::text::jinja {
namespace {

using Items = std::vector<Value>;

/// value.a.b.0 for the path "a.b.0", as the attribute= arguments mean it. Where a part of the path
/// is missing, `fallback` stands for it if there is one.
Outcome<Value> follow(Context& c, const Value& value, const Value& path,
                      const Value* fallback = nullptr) {
  Int index = 0;
  if (!path.text() && !path.as_int(index)) return fault("an attribute must be a name or a number");
  const std::string whole = path.text() ? path.text()->bytes() : format_int(index);
  Value at = value;
  std::string_view rest = whole;
  while (true) {
    const std::size_t dot = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, dot);
    std::int64_t number = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), number);
    const bool is_number =
        !part.empty() && read.ec == std::errc() && read.ptr == part.data() + part.size();
    TRY_VOID(c.meter().step());
    Value key{Int{number}};
    if (!is_number) {
      TRY(key, c.maker().text(std::string(part)));
    }
    // Items come before attributes here, so that a key wins over a method of the same name.
    TRY(at, c.item(at, key));
    if (fallback && at.is_undefined()) at = *fallback;
    if (dot == rest.size()) return at;
    rest.remove_prefix(dot + 1);
  }
}

/// Strings compare without case unless `case_sensitive`.
Outcome<Value> sort_key(Context& c, const Value& value, const Value* attribute,
                        bool case_sensitive) {
  Value key = value;
  if (attribute && !attribute->is_none()) {
    TRY(key, follow(c, value, *attribute));
  }
  if (case_sensitive || !key.text()) return key;
  TRY_VOID(c.meter().work(12 * key.text()->size()));
  return c.maker().text(to_lower(*key.text()));
}

/// Indices in order of their keys; stable.
Outcome<std::vector<std::size_t>> sorted_order(Context& c, const Items& keys, bool reverse) {
  std::vector<std::size_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  Fault trouble;  // std::sort cannot stop, so the first fault makes the rest of it cheap
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    if (trouble) return false;
    auto before = reverse ? less(c.meter(), keys[b], keys[a]) : less(c.meter(), keys[a], keys[b]);
    if (!before) {
      trouble = std::move(before.error());
      return false;
    }
    return *before;
  });
  if (trouble) return tl::unexpected<Fault>(std::move(trouble));
  return order;
}

Outcome<Value> do_sort(Context& c, const Value& self, const Bound& args) {
  TRY(const bool reverse, args.flag(0, false));
  TRY(const bool case_sensitive, args.flag(1, false));
  TRY(const ListPointer list, iterate(c.maker(), self));
  Items keys;
  for (const Value& item : list->items) {
    TRY(Value key, sort_key(c, item, args[2], case_sensitive));
    keys.push_back(std::move(key));
  }
  TRY(const auto order, sorted_order(c, keys, reverse));
  Items sorted;
  for (const std::size_t i : order)
    sorted.push_back(list->items[i]);
  return c.maker().list(std::move(sorted));
}

Outcome<Value> do_dictsort(Context& c, const Value& self, const Bound& args) {
  const Dict* dict = self.dict();
  if (!dict) return fault(fmt::format("dictsort of a {}", type_name(self)));
  TRY(const bool case_sensitive, args.flag(0, false));
  const bool by_value = args[1] && args[1]->text() && args[1]->text()->bytes() == "value";
  TRY(const bool reverse, args.flag(2, false));
  Items keys;
  for (const auto& entry : dict->entries) {
    TRY(Value key, sort_key(c, by_value ? entry.second : entry.first, nullptr, case_sensitive));
    keys.push_back(std::move(key));
  }
  TRY(const auto order, sorted_order(c, keys, reverse));
  Items sorted;
  for (const std::size_t i : order) {
    TRY(Value pair,
        c.maker().list({dict->entries[i].first, dict->entries[i].second}, List::Kind::tuple));
    sorted.push_back(std::move(pair));
  }
  return c.maker().list(std::move(sorted));
}

Outcome<Value> do_items(Context& c, const Value& self, const Bound&) {
  Items items;
  if (const Dict* dict = self.dict()) {
    TRY_VOID(c.meter().step(static_cast<std::int64_t>(dict->entries.size())));
    for (const auto& [key, value] : dict->entries) {
      TRY(Value pair, c.maker().list({key, value}, List::Kind::tuple));
      items.push_back(std::move(pair));
    }
  } else if (!self.is_undefined()) {
    return fault("items needs a mapping");
  }
  return c.maker().list(std::move(items), List::Kind::generator);
}

Outcome<Value> do_list(Context& c, const Value& self, const Bound&) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  TRY_VOID(c.meter().step(static_cast<std::int64_t>(list->items.size() / 8)));
  return c.maker().list(list->items);
}

Outcome<Value> do_join(Context& c, const Value& self, const Bound& args) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  MarkedText separator;
  if (args[0]) TRY_VOID(print(c.meter(), *args[0], separator));
  MarkedText joined;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    Value item = list->items[i];
    if (args[1] && !args[1]->is_none()) {
      TRY(item, follow(c, item, *args[1]));
    }
    TRY_VOID(c.meter().step());
    TRY_VOID(c.meter().work(separator.size()));
    if (i) joined.append(separator);
    TRY_VOID(print(c.meter(), item, joined));
  }
  return c.maker().text(std::move(joined));
}

Outcome<Value> do_first(Context& c, const Value& self, const Bound&) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  return list->items.empty() ? Value() : list->items.front();
}
Outcome<Value> do_last(Context& c, const Value& self, const Bound&) {
  if (self.list() && self.list()->kind == List::Kind::generator)
    return fault("last of a generator; make it a list first");
  TRY(const ListPointer list, iterate(c.maker(), self));
  return list->items.empty() ? Value() : list->items.back();
}

Outcome<Value> do_reverse(Context& c, const Value& self, const Bound&) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  TRY_VOID(c.meter().step(static_cast<std::int64_t>(list->items.size() / 8)));
  if (self.text()) {
    MarkedText reversed;
    for (auto it = list->items.rbegin(); it != list->items.rend(); ++it)
      reversed.append(*it->text());
    return c.maker().text(std::move(reversed));
  }
  return c.maker().list(Items(list->items.rbegin(), list->items.rend()), List::Kind::generator);
}

Outcome<Value> do_unique(Context& c, const Value& self, const Bound& args) {
  TRY(const bool case_sensitive, args.flag(0, false));
  TRY(const ListPointer list, iterate(c.maker(), self));
  Items kept, keys;
  std::vector<std::pair<Value, Value>> seen;
  for (const Value& item : list->items) {
    TRY(Value key, sort_key(c, item, args[1], case_sensitive));
    bool known = false;
    for (std::size_t i = 0; i < keys.size() && !known; ++i) {
      TRY(known, equal(c.meter(), keys[i], key));
    }
    if (known) continue;
    keys.push_back(std::move(key));
    kept.push_back(item);
  }
  return c.maker().list(std::move(kept), List::Kind::generator);
}

Outcome<Value> extreme(Context& c, const Value& self, const Bound& args, bool largest) {
  TRY(const bool case_sensitive, args.flag(0, false));
  TRY(const ListPointer list, iterate(c.maker(), self));
  Value best, best_key;
  for (std::size_t i = 0; i < list->items.size(); ++i) {
    TRY(Value key, sort_key(c, list->items[i], args[1], case_sensitive));
    bool better = i == 0;
    if (i) {
      TRY(better, largest ? less(c.meter(), best_key, key) : less(c.meter(), key, best_key));
    }
    if (!better) continue;
    best = list->items[i];
    best_key = std::move(key);
  }
  return best;
}
Outcome<Value> do_min(Context& c, const Value& self, const Bound& args) {
  return extreme(c, self, args, false);
}
Outcome<Value> do_max(Context& c, const Value& self, const Bound& args) {
  return extreme(c, self, args, true);
}

Outcome<Value> do_sum(Context& c, const Value& self, const Bound& args) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  Value total = args[1] ? *args[1] : Value(Int{0});
  for (const Value& each : list->items) {
    Value item = each;
    if (args[0] && !args[0]->is_none()) {
      TRY(item, follow(c, item, *args[0]));
    }
    TRY_VOID(c.meter().step());
    TRY(total, arithmetic(c.maker(), Operator::add, total, item));
  }
  return total;
}

Outcome<Value> do_batch(Context& c, const Value& self, const Bound& args) {
  TRY(const std::int64_t size, args.integer(0, 0));
  if (size < 1) return fault("batch needs a size of at least 1");
  TRY(const ListPointer list, iterate(c.maker(), self));
  Items rows, row;
  const auto finish_row = [&]() -> Outcome<void> {
    TRY(Value made, c.maker().list(std::move(row)));
    rows.push_back(std::move(made));
    row.clear();
    return {};
  };
  for (const Value& item : list->items) {
    if (static_cast<std::int64_t>(row.size()) == size) TRY_VOID(finish_row());
    TRY_VOID(c.meter().step());
    row.push_back(item);
  }
  if (!row.empty()) {
    if (args[1] && !args[1]->is_none())
      for (; static_cast<std::int64_t>(row.size()) < size; row.push_back(*args[1]))
        TRY_VOID(c.meter().step());
    TRY_VOID(finish_row());
  }
  return c.maker().list(std::move(rows), List::Kind::generator);
}

// --- filters that take a filter or a test by name ---

const Value* named(const Arguments& all, std::string_view name) {
  for (const auto& [key, value] : all.named)
    if (key == name) return &value;
  return nullptr;
}

Outcome<Value> do_map(Context& c, const Value& self, const Bound& args) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  const Arguments& all = args.all();
  Items mapped;
  mapped.reserve(list->items.size());
  if (const Value* attribute = named(all, "attribute")) {
    const Value* fallback = named(all, "default");
    for (const Value& item : list->items) {
      TRY(Value found, follow(c, item, *attribute, fallback));
      mapped.push_back(std::move(found));
    }
    return c.maker().list(std::move(mapped), List::Kind::generator);
  }
  if (all.positional.empty() || !all.positional[0].text())
    return fault("map needs the name of a filter, or attribute=");
  const Callable* filter = find_filter(all.positional[0].text()->bytes());
  if (!filter)
    return fault(fmt::format("there is no filter '{}'", all.positional[0].text()->bytes()));
  Arguments rest{{all.positional.begin() + 1, all.positional.end()}, all.named};
  for (const Value& item : list->items) {
    TRY_VOID(c.meter().step());
    TRY(Value made, call(c, *filter, item, rest));
    mapped.push_back(std::move(made));
  }
  return c.maker().list(std::move(mapped), List::Kind::generator);
}

/// select, reject, selectattr and rejectattr: items whose test is `wanted`.
Outcome<Value> choose(Context& c, const Value& self, const Bound& args, bool by_attribute,
                      bool wanted) {
  TRY(const ListPointer list, iterate(c.maker(), self));
  Arguments rest = args.all();
  const auto take_first = [&] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) return fault("selectattr and rejectattr need an attribute");
    attribute = take_first();
  }
  const Test* test = nullptr;
  if (!rest.positional.empty()) {
    const Value name = take_first();
    test = name.text() ? find_test(name.text()->bytes()) : nullptr;
    if (!test)
      return fault(fmt::format("there is no test '{}'",
                               name.text() ? name.text()->bytes() : type_name(name)));
  }
  Items kept;
  for (const Value& item : list->items) {
    TRY_VOID(c.meter().step());
    Value tested = item;
    if (by_attribute) {
      TRY(tested, follow(c, item, attribute));
    }
    bool passes = truth(tested);
    if (test) {
      TRY(passes, run_test(c, *test, tested, rest));
    }
    if (passes == wanted) kept.push_back(item);
  }
  return c.maker().list(std::move(kept), List::Kind::generator);
}
template <bool by_attribute, bool wanted>
Outcome<Value> do_choose(Context& c, const Value& self, const Bound& args) {
  return choose(c, self, args, by_attribute, wanted);
}

const Callable kSequenceFilters[] = {
    {"items", "", do_items},
    {"list", "", do_list},
    {"join", "d,attribute", do_join},
    {"first", "", do_first},
    {"last", "", do_last},
    {"reverse", "", do_reverse},
    {"sort", "reverse,case_sensitive,attribute", do_sort},
    {"dictsort", "case_sensitive,by,reverse", do_dictsort},
    {"unique", "case_sensitive,attribute", do_unique},
    {"min", "case_sensitive,attribute", do_min},
    {"max", "case_sensitive,attribute", do_max},
    {"sum", "attribute,start", do_sum},
    {"batch", "linecount,fill_with", do_batch},
    {"map", "*", do_map},
    {"select", "*", do_choose<false, true>},
    {"reject", "*", do_choose<false, false>},
    {"selectattr", "*", do_choose<true, true>},
    {"rejectattr", "*", do_choose<true, false>},
};

}  // namespace

const Callable* find_sequence_filter(std::string_view name) {
  for (const Callable& filter : kSequenceFilters)
    if (filter.name == name) return &filter;
  return nullptr;
}

}  // namespace ponder::text::jinja
