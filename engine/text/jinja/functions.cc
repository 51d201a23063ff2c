// The functions a template may call by name.
#include <fmt/format.h>

#include <array>

#include "engine/base/utf8.h"
#include "engine/text/jinja/callable.h"
#include "engine/text/jinja/print.h"
#include "engine/text/jinja/strftime.h"

namespace ponder::text::jinja {
namespace {

Outcome<Value> do_range(Context& c, const Value&, const Bound& args) {
  if (!args[0]) return fault("range() needs a number");
  for (std::size_t i = 0; i < 3; ++i) {
    Int n = 0;
    if (args[i] && !args[i]->as_int(n))
      return fault(fmt::format("range() of a {}", type_name(*args[i])));
  }
  TRY(const std::int64_t first, args.integer(0, 0));
  TRY(const std::int64_t second, args.integer(1, 0));
  TRY(const std::int64_t step, args.integer(2, 1));
  const std::int64_t start = args[1] ? first : 0;
  const std::int64_t stop = args[1] ? second : first;
  if (step == 0) return fault("range() with a step of 0");
  const Int distance = step > 0 ? Int{stop} - start : Int{start} - stop;
  const Int stride = step > 0 ? step : -Int{step};
  const Int count = distance <= 0 ? 0 : (distance + stride - 1) / stride;
  if (count > c.meter().limits().range)
    return fault(fmt::format("range() of more than {} numbers", c.meter().limits().range));
  TRY_VOID(c.meter().step(static_cast<std::int64_t>(count / 4)));
  std::vector<Value> numbers;
  numbers.reserve(static_cast<std::size_t>(count));
  for (Int i = 0; i < count; ++i)
    numbers.push_back(Value(start + i * step));
  std::string label = step == 1 ? fmt::format("range({}, {})", start, stop)
                                : fmt::format("range({}, {}, {})", start, stop, step);
  return c.maker().list(std::move(numbers), List::Kind::range, std::move(label));
}

/// The entries that dict() and namespace() are given: a dict or pairs, and named arguments.
Outcome<std::vector<std::pair<Value, Value>>> entries_of(Context& c, const Arguments& all) {
  std::vector<std::pair<Value, Value>> entries;
  if (all.positional.size() > 1) return fault("at most one dict is taken here");
  if (!all.positional.empty()) {
    const Value& from = all.positional[0];
    if (const Dict* dict = from.dict()) {
      TRY_VOID(c.meter().step(static_cast<std::int64_t>(dict->entries.size())));
      entries = dict->entries;
    } else {
      TRY(const ListPointer pairs, iterate(c.maker(), from));
      for (const Value& each : pairs->items) {
        const List* pair = each.list();
        TRY_VOID(c.meter().step());
        if (!pair || pair->items.size() != 2) return fault("a dict is made of pairs");
        entries.emplace_back(pair->items[0], pair->items[1]);
      }
    }
  }
  for (const auto& [name, value] : all.named) {
    TRY(Value key, c.maker().text(std::string(name), Origin::template_source));
    entries.emplace_back(std::move(key), value);
  }
  return entries;
}

Outcome<Value> do_dict(Context& c, const Value&, const Bound& args) {
  TRY(auto entries, entries_of(c, args.all()));
  return c.maker().dict(std::move(entries));
}

Outcome<Value> do_namespace(Context& c, const Value&, const Bound& args) {
  TRY(auto entries, entries_of(c, args.all()));
  TRY(const Value unique, c.maker().dict(std::move(entries)));
  TRY_VOID(c.meter().step(8));
  TRY(Namespace* const made, c.new_namespace());
  for (const auto& [key, value] : unique.dict()->entries) {
    if (!key.text()) return fault("a namespace's names are strings");
    made->members.emplace_back(key.text()->bytes(), value);
  }
  return Value(made);
}

Outcome<Value> do_raise(Context& c, const Value&, const Bound& args) {
  MarkedText message;
  if (args[0]) TRY_VOID(print(c.meter(), *args[0], message));
  // What a template says of the caller's input, cut to a sentence's length.
  std::string said = message.bytes().substr(0, 400);
  said.resize(complete_prefix(said));
  return fault("the model's chat template refuses this: " + said);
}

Outcome<Value> do_strftime(Context& c, const Value&, const Bound& args) {
  if (!args[0] || !args[0]->text()) return fault("strftime_now() needs a format");
  Int now = 0;
  if (!c.now().as_int(now) || now < 0 || now > Int{253402300799})
    return fault(
        "strftime_now() has no time to tell: the variable 'now' (seconds since 1970, UTC) "
        "is not given");
  const std::string& format = args[0]->text()->bytes();
  TRY_VOID(c.meter().length(16 * format.size()));
  TRY(std::string written, format_time(format, static_cast<std::int64_t>(now)));
  return c.maker().text(std::move(written));
}

const Callable kFunctions[] = {
    {"range", "start,stop,step", do_range},  {"dict", "*", do_dict},
    {"namespace", "*", do_namespace},        {"raise_exception", "message", do_raise},
    {"strftime_now", "format", do_strftime},
};

}  // namespace

const Callable* find_function(std::string_view name) {
  for (const Callable& function : kFunctions)
    if (function.name == name) return &function;
  return nullptr;
}

}  // namespace ponder::text::jinja
