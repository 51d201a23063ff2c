#pragma once
// Values of the template language: Python's, as far as templates see them. All are immutable but
// namespaces, which live in the interpreter's arena; so no value can contain itself, and lists
// and dicts bound their depth when they are made. One render's values stay on its thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "engine/base/json.h"
#include "engine/text/jinja/marked_text.h"
#include "engine/text/jinja/meter.h"

namespace ponder::text::jinja {

/// Wide enough for JSON's unsigned numbers; Python's own have no bound, ours are refused past it.
__extension__ using Int = __int128;

class Value;
struct List;
struct Dict;
struct Namespace;
struct MacroNode;
struct LoopState;
struct BoundMethod;
struct Callable;  // a global such as range, or a method

struct Undefined {
  int symbol = -1;  ///< the name that was looked up, in the template's symbol table
};
struct None {};
using TextPointer = std::shared_ptr<const MarkedText>;
using ListPointer = std::shared_ptr<const List>;
using DictPointer = std::shared_ptr<const Dict>;

class Value {
 public:
  using Variant = std::variant<Undefined, None, bool, Int, double, TextPointer, ListPointer,
                               DictPointer, Namespace*, const MacroNode*, const Callable*,
                               std::shared_ptr<LoopState>, std::shared_ptr<const BoundMethod>>;

  Value() = default;
  template <class T, class = std::enable_if_t<std::is_constructible_v<Variant, T&&> &&
                                              !std::is_same_v<std::decay_t<T>, Value>>>
  Value(T&& held) : held_(std::forward<T>(held)) {}  // NOLINT: a value is any of its kinds

  template <class T>
  const T* get() const {
    return std::get_if<T>(&held_);
  }
  bool is_undefined() const { return get<Undefined>() != nullptr; }
  bool is_none() const { return get<None>() != nullptr; }
  /// nullptr unless it is of that kind.
  const MarkedText* text() const {
    const auto* p = get<TextPointer>();
    return p ? p->get() : nullptr;
  }
  const List* list() const {
    const auto* p = get<ListPointer>();
    return p ? p->get() : nullptr;
  }
  const Dict* dict() const {
    const auto* p = get<DictPointer>();
    return p ? p->get() : nullptr;
  }
  /// The number of an int or a bool (which Python counts as one).
  bool as_int(Int& out) const;
  /// The number of an int, bool or float.
  bool as_double(double& out) const;
  const Variant& held() const { return held_; }

 private:
  Variant held_;
};

struct List {
  enum class Kind { list, tuple, generator, range, dict_keys, dict_values, dict_items };
  std::vector<Value> items;
  Kind kind = Kind::list;
  std::string label = {};  ///< how a range prints
  int depth = 1;
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  ///< in order; keys are scalars or tuples
  std::unordered_map<std::string_view, std::size_t> index = {};  ///< of text keys, when many
  int depth = 1;

  const Value* find(std::string_view key) const;
  Outcome<const Value*> find(Meter& meter, const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> members;

  const Value* find(std::string_view name) const;
};

struct LoopState {
  ListPointer items;
  std::size_t at = 0;
  int depth0 = 0;
  /// What loop.changed() saw last, as it prints: a value here could hold this very loop.
  std::optional<std::string> changed = {};
};

struct BoundMethod {
  Value self;
  const Callable* method = nullptr;
};

/// Makes values and counts what they hold against the render's meter, which must outlive them.
class ValueMaker {
 public:
  explicit ValueMaker(Meter& meter) : meter_(meter) {}

  Meter& meter() { return meter_; }
  Outcome<Value> text(MarkedText text);
  Outcome<Value> text(std::string bytes, Origin origin = Origin::caller) {
    return this->text(MarkedText(std::move(bytes), origin));
  }
  Outcome<Value> list(std::vector<Value> items, List::Kind kind = List::Kind::list,
                      std::string label = {});
  /// Later entries replace earlier ones of the same key, in the earlier one's place.
  Outcome<Value> dict(std::vector<std::pair<Value, Value>> entries);
  /// A caller's JSON; strings are marked as `origin`. Not counted: the caller holds it anyway.
  Outcome<Value> from_json(const json::value& value, Origin origin, int depth = 0);

 private:
  Meter& meter_;
};

bool truth(const Value& value);
/// "int object", "None", ... for messages, as Python says it.
std::string type_name(const Value& value);
/// Deep equality as Python has it: 1 == 1.0 == true, a list is no tuple.
Outcome<bool> equal(Meter& meter, const Value& a, const Value& b);
/// < for numbers, strings, lists and tuples; a fault for others.
Outcome<bool> less(Meter& meter, const Value& a, const Value& b);
/// `item in container`.
Outcome<bool> contains(Meter& meter, const Value& container, const Value& item);
/// The elements that a for loop sees: list items, dict keys, characters, nothing for undefined.
Outcome<ListPointer> iterate(ValueMaker& maker, const Value& value);
/// Whether iterate() would work.
bool is_iterable(const Value& value);

}  // namespace ponder::text::jinja
