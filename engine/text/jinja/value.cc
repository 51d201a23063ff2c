#include "engine/text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "engine/base/utf8.h"
#include "engine/text/jinja/text_search.h"

namespace ponder::text::jinja {
namespace {

constexpr int kMaxValueDepth = 128;
constexpr std::size_t kIndexFrom = 8;  // entries of a dict from which an index pays

/// Gives back to the meter what was counted when it was made.
struct HeldText final : MarkedText {
  HeldText(MarkedText text, Meter& m, std::size_t n)
      : MarkedText(std::move(text)), meter(m), bytes(n) {}
  HeldText(const HeldText&) = delete;
  HeldText& operator=(const HeldText&) = delete;
  ~HeldText() { meter.release(bytes); }
  Meter& meter;
  std::size_t bytes;
};
struct HeldList final : List {
  explicit HeldList(Meter& m) : meter(m) {}
  HeldList(const HeldList&) = delete;
  HeldList& operator=(const HeldList&) = delete;
  ~HeldList() { meter.release(bytes); }
  Meter& meter;
  std::size_t bytes = 0;
};
struct HeldDict final : Dict {
  explicit HeldDict(Meter& m) : meter(m) {}
  HeldDict(const HeldDict&) = delete;
  HeldDict& operator=(const HeldDict&) = delete;
  ~HeldDict() { meter.release(bytes); }
  Meter& meter;
  std::size_t bytes = 0;
};

int depth_of(const Value& value) {
  if (const List* list = value.list()) return list->depth;
  if (const Dict* dict = value.dict()) return dict->depth;
  // These hold values too, and are freed as deep.
  if (const auto* loop = value.get<std::shared_ptr<LoopState>>()) return 1 + (*loop)->items->depth;
  if (const auto* bound = value.get<std::shared_ptr<const BoundMethod>>())
    return 1 + depth_of((*bound)->self);
  return 0;
}

tl::unexpected<Fault> too_deep() {
  return fault(fmt::format("a value is nested deeper than {} levels", kMaxValueDepth));
}

/// What may be a dict's key: what does not hold a list or dict.
bool is_hashable(const Value& value) {
  if (value.dict()) return false;
  const List* list = value.list();
  if (!list) return true;
  if (list->kind != List::Kind::tuple) return false;
  return std::all_of(list->items.begin(), list->items.end(), is_hashable);
}

void build_index(Dict& dict) {
  if (dict.entries.size() < kIndexFrom) return;
  dict.index.reserve(dict.entries.size());
  for (std::size_t i = 0; i < dict.entries.size(); ++i)
    if (const MarkedText* key = dict.entries[i].first.text())
      dict.index.try_emplace(key->bytes(), i);
}

}  // namespace

bool Value::as_int(Int& out) const {
  if (const Int* n = get<Int>()) return out = *n, true;
  if (const bool* b = get<bool>()) return out = *b ? 1 : 0, true;
  return false;
}

bool Value::as_double(double& out) const {
  if (const double* d = get<double>()) return out = *d, true;
  Int n = 0;
  if (!as_int(n)) return false;
  out = static_cast<double>(n);
  return true;
}

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto it = index.find(key);
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  for (const auto& [name, value] : entries)
    if (const MarkedText* text = name.text(); text && text->bytes() == key) return &value;
  return nullptr;
}

Outcome<const Value*> Dict::find(Meter& meter, const Value& key) const {
  if (const MarkedText* text = key.text()) return find(text->bytes());
  if (!is_hashable(key))
    return fault(fmt::format("a {} cannot be the key of a dict", type_name(key)));
  for (const auto& [name, value] : entries) {
    TRY(const bool same, equal(meter, name, key));
    if (same) return &value;
  }
  return nullptr;
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [member, value] : members)
    if (member == name) return &value;
  return nullptr;
}

Outcome<Value> ValueMaker::text(MarkedText text) {
  TRY_VOID(meter_.length(text.size()));
  const std::size_t bytes = text.size() + 96;
  TRY_VOID(meter_.hold(bytes));
  return Value(TextPointer(std::make_shared<HeldText>(std::move(text), meter_, bytes)));
}

Outcome<Value> ValueMaker::list(std::vector<Value> items, List::Kind kind, std::string label) {
  auto list = std::make_shared<HeldList>(meter_);
  list->bytes = items.size() * sizeof(Value) + 96;
  TRY_VOID(meter_.hold(list->bytes));
  for (const Value& item : items)
    list->depth = std::max(list->depth, 1 + depth_of(item));
  if (list->depth > kMaxValueDepth) return too_deep();
  list->items = std::move(items);
  list->kind = kind;
  list->label = std::move(label);
  return Value(ListPointer(std::move(list)));
}

Outcome<Value> ValueMaker::dict(std::vector<std::pair<Value, Value>> entries) {
  auto dict = std::make_shared<HeldDict>(meter_);
  dict->bytes = entries.size() * (2 * sizeof(Value) + 48) + 96;
  TRY_VOID(meter_.hold(dict->bytes));
  std::unordered_map<std::string_view, std::size_t> seen;
  for (auto& [key, value] : entries) {
    dict->depth = std::max({dict->depth, 1 + depth_of(key), 1 + depth_of(value)});
    std::size_t at = dict->entries.size();
    if (const MarkedText* text = key.text()) {
      at = seen.try_emplace(text->bytes(), at).first->second;
    } else {
      TRY(const Value* const earlier, dict->find(meter_, key));
      for (std::size_t i = 0; earlier && i < dict->entries.size(); ++i)
        if (&dict->entries[i].second == earlier) at = i;
    }
    if (at < dict->entries.size()) {
      dict->entries[at].second = std::move(value);
    } else {
      dict->entries.emplace_back(std::move(key), std::move(value));
    }
  }
  if (dict->depth > kMaxValueDepth) return too_deep();
  build_index(*dict);
  return Value(DictPointer(std::move(dict)));
}

Outcome<Value> ValueMaker::from_json(const json::value& value, Origin origin, int depth) {
  if (depth > kMaxValueDepth) return too_deep();
  switch (value.kind()) {
    case json::kind::null:
      return Value(None{});
    case json::kind::bool_:
      return Value(value.get_bool());
    case json::kind::int64:
      return Value(Int{value.get_int64()});
    case json::kind::uint64:
      return Value(Int{value.get_uint64()});
    case json::kind::double_:
      return Value(value.get_double());
    case json::kind::string:
      return Value(TextPointer(
          std::make_shared<MarkedText>(std::string(std::string_view(value.get_string())), origin)));
    case json::kind::array: {
      auto list = std::make_shared<List>();
      list->items.reserve(value.get_array().size());
      for (const json::value& item : value.get_array()) {
        TRY(Value made, from_json(item, origin, depth + 1));
        list->depth = std::max(list->depth, 1 + depth_of(made));
        list->items.push_back(std::move(made));
      }
      return Value(ListPointer(std::move(list)));
    }
    case json::kind::object: {
      auto dict = std::make_shared<Dict>();
      dict->entries.reserve(value.get_object().size());
      for (const auto& member : value.get_object()) {
        TRY(Value made, from_json(member.value(), origin, depth + 1));
        dict->depth = std::max(dict->depth, 1 + depth_of(made));
        dict->entries.emplace_back(Value(TextPointer(std::make_shared<MarkedText>(
                                       std::string(std::string_view(member.key())), origin))),
                                   std::move(made));
      }
      build_index(*dict);
      return Value(DictPointer(std::move(dict)));
    }
  }
  return Value();
}

bool truth(const Value& value) {
  if (const bool* b = value.get<bool>()) return *b;
  if (const Int* n = value.get<Int>()) return *n != 0;
  if (const double* d = value.get<double>()) return *d != 0;
  if (const MarkedText* text = value.text()) return !text->empty();
  if (const List* list = value.list())
    return list->kind == List::Kind::generator || !list->items.empty();
  if (const Dict* dict = value.dict()) return !dict->entries.empty();
  return !value.is_undefined() && !value.is_none();
}

std::string type_name(const Value& value) {
  if (value.is_undefined()) return "undefined value";
  if (value.is_none()) return "None";
  if (value.get<bool>()) return "bool";
  if (value.get<Int>()) return "int";
  if (value.get<double>()) return "float";
  if (value.text()) return "str";
  if (value.dict()) return "dict";
  if (value.get<Namespace*>()) return "namespace";
  if (const List* list = value.list()) {
    switch (list->kind) {
      case List::Kind::list:
        return "list";
      case List::Kind::tuple:
        return "tuple";
      case List::Kind::generator:
        return "generator";
      case List::Kind::range:
        return "range";
      case List::Kind::dict_keys:
        return "dict_keys";
      case List::Kind::dict_values:
        return "dict_values";
      case List::Kind::dict_items:
        return "dict_items";
    }
  }
  if (value.get<std::shared_ptr<LoopState>>()) return "loop";
  return "function";
}

namespace {

Outcome<bool> equal_items(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    TRY(const bool same, equal(meter, a[i], b[i]));
    if (!same) return false;
  }
  return true;
}

Outcome<bool> equal_entries(Meter& meter, const Dict& a, const Dict& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    TRY(const Value* const other, b.find(meter, key));
    if (!other) return false;
    TRY(const bool same, equal(meter, value, *other));
    if (!same) return false;
  }
  return true;
}

/// dict views compare as sets or not at all in Python; here they count as lists of their own kind.
bool same_sequence_kind(List::Kind a, List::Kind b) {
  return a == b;
}

}  // namespace

Outcome<bool> equal(Meter& meter, const Value& a, const Value& b) {
  TRY_VOID(meter.step());
  Int m = 0, n = 0;
  if (a.as_int(m) && b.as_int(n)) return m == n;
  double x = 0, y = 0;
  if (a.as_double(x) && b.as_double(y)) return x == y;
  if (const MarkedText* s = a.text(), *t = b.text(); s && t) {
    if (s->size() == t->size()) TRY_VOID(meter.work(s->size()));
    return s->bytes() == t->bytes();
  }
  if (const List* s = a.list(), *t = b.list(); s && t) {
    if (s == t) return true;
    if (!same_sequence_kind(s->kind, t->kind)) return false;
    return equal_items(meter, s->items, t->items);
  }
  if (const Dict* s = a.dict(), *t = b.dict(); s && t)
    return s == t ? Outcome<bool>(true) : equal_entries(meter, *s, *t);
  if (a.is_none() || b.is_none()) return a.is_none() && b.is_none();
  if (a.is_undefined() || b.is_undefined()) return a.is_undefined() && b.is_undefined();
  const auto *p = a.get<Namespace*>(), *q = b.get<Namespace*>();
  if (p && q) return *p == *q;
  const auto *f = a.get<const MacroNode*>(), *g = b.get<const MacroNode*>();
  if (f && g) return *f == *g;
  const auto *h = a.get<const Callable*>(), *k = b.get<const Callable*>();
  return h && k && *h == *k;
}

Outcome<bool> less(Meter& meter, const Value& a, const Value& b) {
  TRY_VOID(meter.step());
  Int m = 0, n = 0;
  if (a.as_int(m) && b.as_int(n)) return m < n;
  double x = 0, y = 0;
  if (a.as_double(x) && b.as_double(y)) return x < y;
  if (const MarkedText* s = a.text(), *t = b.text(); s && t) {
    TRY_VOID(meter.work(std::min(s->size(), t->size())));
    return s->bytes() < t->bytes();  // the order of UTF-8 bytes is that of code points
  }
  if (const List* s = a.list(), *t = b.list(); s && t && same_sequence_kind(s->kind, t->kind)) {
    const std::size_t common = std::min(s->items.size(), t->items.size());
    for (std::size_t i = 0; i < common; ++i) {
      TRY(const bool same, equal(meter, s->items[i], t->items[i]));
      if (!same) return less(meter, s->items[i], t->items[i]);
    }
    return s->items.size() < t->items.size();
  }
  return fault(fmt::format("cannot order a {} and a {}", type_name(a), type_name(b)));
}

Outcome<bool> contains(Meter& meter, const Value& container, const Value& item) {
  if (container.is_undefined()) return false;
  if (const MarkedText* text = container.text()) {
    const MarkedText* part = item.text();
    if (!part)
      return fault(fmt::format("'in' a str needs a str on its left, not a {}", type_name(item)));
    TRY_VOID(meter.work(4 * text->size() + 4 * part->size()));
    return find_text(text->bytes(), part->bytes(), 0) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    TRY(const Value* const found, dict->find(meter, item));
    return found != nullptr;
  }
  if (const List* list = container.list()) {
    for (const Value& each : list->items) {
      TRY(const bool same, equal(meter, each, item));
      if (same) return true;
    }
    return false;
  }
  return fault(fmt::format("a {} has no members for 'in'", type_name(container)));
}

bool is_iterable(const Value& value) {
  return value.list() || value.dict() || value.text() || value.is_undefined();
}

Outcome<ListPointer> iterate(ValueMaker& maker, const Value& value) {
  if (const auto* list = value.get<ListPointer>()) return *list;
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    TRY_VOID(maker.meter().step(static_cast<std::int64_t>(dict->entries.size())));
    items.reserve(dict->entries.size());
    for (const auto& entry : dict->entries)
      items.push_back(entry.first);
  } else if (const MarkedText* text = value.text()) {
    char32_t c = 0;
    for (std::size_t i = 0; i < text->size();) {
      const auto n = static_cast<std::size_t>(std::max(1, decode_utf8(text->bytes(), i, c)));
      TRY_VOID(maker.meter().step(4));  // makes a value of each
      TRY(Value character, maker.text(text->slice(i, i + n)));
      items.push_back(std::move(character));
      i += n;
    }
  } else if (!value.is_undefined()) {
    return fault(fmt::format("a {} cannot be looped over", type_name(value)));
  }
  TRY(const Value list, maker.list(std::move(items)));
  return *list.get<ListPointer>();
}

}  // namespace ponder::text::jinja
