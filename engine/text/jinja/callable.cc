#include "engine/text/jinja/callable.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace ponder::text::jinja {

Outcome<Bound> Bound::bind(std::string_view callee, std::string_view parameters,
                           const Arguments& arguments) {
  Bound bound;
  bound.all_ = &arguments;
  if (parameters == "*") return bound;
  std::string_view names[kMost];
  std::size_t count = 0;
  for (std::string_view rest = parameters; !rest.empty() && count < kMost;) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    names[count++] = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  if (arguments.positional.size() > count)
    return fault(fmt::format("{}() takes at most {} arguments", callee, count));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i)
    bound.values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto* found = std::find(names, names + count, name);
    const auto at = static_cast<std::size_t>(found - names);
    if (at == count) return fault(fmt::format("{}() has no argument '{}'", callee, name));
    if (bound.values_[at]) return fault(fmt::format("{}() got '{}' twice", callee, name));
    bound.values_[at] = &value;
  }
  return bound;
}

Outcome<std::int64_t> Bound::integer(std::size_t i, std::int64_t fallback) const {
  const Value* value = (*this)[i];
  if (!value || value->is_none()) return fallback;
  Int n = 0;
  if (!value->as_int(n))
    return fault(fmt::format("a whole number is needed, not a {}", type_name(*value)));
  const Int most = std::numeric_limits<std::int64_t>::max() / 4;
  return static_cast<std::int64_t>(std::clamp<Int>(n, -most, most));
}

Outcome<bool> Bound::flag(std::size_t i, bool fallback) const {
  const Value* value = (*this)[i];
  return value ? truth(*value) : fallback;
}

Outcome<Value> call(Context& context, const Callable& callable, const Value& self,
                    const Arguments& arguments) {
  TRY_VOID(context.meter().step(2));
  TRY(const Bound bound, Bound::bind(callable.name, callable.parameters, arguments));
  return callable.run(context, self, bound);
}

}  // namespace ponder::text::jinja
