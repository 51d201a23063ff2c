#pragma once
// What the tables of filters, methods, functions and tests are made of, and what their entries
// may do: everything goes through the Context; nothing reaches the host.
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/jinja/value.h"

namespace ponder::text::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;
};

/// Arguments by parameter.
class Bound {
 public:
  /// Binds to `parameters`, a list like "width,first"; "*" binds nothing and takes all.
  static Outcome<Bound> bind(std::string_view callee, std::string_view parameters,
                             const Arguments& arguments);

  /// The argument of parameter number `i`, or nullptr where none was given.
  const Value* operator[](std::size_t i) const { return i < kMost ? values_[i] : nullptr; }
  const Arguments& all() const { return *all_; }

  /// Typed, with a default for an argument that was not given.
  Outcome<std::int64_t> integer(std::size_t i, std::int64_t fallback) const;
  Outcome<bool> flag(std::size_t i, bool fallback) const;

 private:
  static constexpr std::size_t kMost = 6;
  const Value* values_[kMost] = {};
  const Arguments* all_ = nullptr;
};

/// The interpreter as filters and functions see it.
class Context {
 public:
  virtual ~Context() = default;
  virtual ValueMaker& maker() = 0;
  Meter& meter() { return maker().meter(); }
  /// value.name and value[key].
  virtual Outcome<Value> attribute(const Value& value, std::string_view name) = 0;
  virtual Outcome<Value> item(const Value& value, const Value& key) = 0;
  /// An empty namespace, which lives as long as the render.
  virtual Outcome<Namespace*> new_namespace() = 0;
  /// The caller's variable `now`, for strftime_now.
  virtual Value now() = 0;
};

struct Callable {
  std::string_view name;
  std::string_view parameters;  ///< without `self`
  /// `self` is the filtered value or the method's object.
  Outcome<Value> (*run)(Context&, const Value& self, const Bound& arguments);
};

/// nullptr for a name that is not known.
const Callable* find_filter(std::string_view name);
const Callable* find_function(std::string_view name);
/// The method `name` of values like this one.
const Callable* find_method(const Value& value, std::string_view name);

/// Runs it with arguments still unbound.
Outcome<Value> call(Context& context, const Callable& callable, const Value& self,
                    const Arguments& arguments);

}  // namespace ponder::text::jinja
