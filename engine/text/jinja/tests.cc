#include "engine/text/jinja/tests.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>

#include "engine/base/utf8.h"

namespace ponder::text::jinja {
namespace {

Outcome<Int> whole(const Value& value) {
  Int n = 0;
  if (!value.as_int(n))
    return fault(fmt::format("the test needs a whole number, not a {}", type_name(value)));
  return n;
}

/// str.isupper() / str.islower(): at least one cased character and none of the other case.
bool has_only_case(std::string_view text, bool upper) {
  bool found = false;
  char32_t c = 0;
  for (std::size_t i = 0; i < text.size();) {
    i += static_cast<std::size_t>(std::max(1, decode_utf8(text, i, c)));
    const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category == UTF8PROC_CATEGORY_LT) return false;
    if (category == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU)) return false;
    found = found || category == (upper ? UTF8PROC_CATEGORY_LU : UTF8PROC_CATEGORY_LL);
  }
  return found;
}

Outcome<bool> has_case(Context& context, const Value& value, bool upper) {
  const MarkedText* text = value.text();
  if (!text) return false;
  TRY_VOID(context.meter().work(8 * text->size()));
  return has_only_case(text->bytes(), upper);
}

bool is_number(const Value& v) {
  return v.get<Int>() || v.get<double>() || v.get<bool>();
}

bool is_sequence(const Value& v) {
  if (const List* list = v.list())
    return list->kind == List::Kind::list || list->kind == List::Kind::tuple ||
           list->kind == List::Kind::range;
  // As in Jinja2: whatever has a length and can be indexed, undefined values among them.
  return v.text() || v.dict() || v.is_undefined();
}

bool is_callable(const Value& v) {
  return v.is_undefined() || v.get<const MacroNode*>() || v.get<const Callable*>() ||
         v.get<std::shared_ptr<const BoundMethod>>() || v.get<std::shared_ptr<LoopState>>();
}

/// `is` of Python, as far as values can show it.
bool is_same(const Value& a, const Value& b) {
  if (a.list() || a.dict() || b.list() || b.dict())
    return a.list() == b.list() && a.dict() == b.dict();
  if (a.held().index() != b.held().index()) return false;
  if (const MarkedText* s = a.text(), *t = b.text(); s && t) return s->bytes() == t->bytes();
  if (const Int* m = a.get<Int>(), *n = b.get<Int>(); m && n) return *m == *n;
  if (const bool* m = a.get<bool>(), *n = b.get<bool>(); m && n) return *m == *n;
  if (const double* m = a.get<double>(), *n = b.get<double>(); m && n) return *m == *n;
  if (const auto* m = a.get<Namespace*>(), *n = b.get<Namespace*>(); m && n) return *m == *n;
  return a.is_none() || a.is_undefined();
}

Outcome<bool> at_least(Context& c, const Value& a, const Value& b) {  // a >= b
  TRY(const bool bigger, less(c.meter(), b, a));
  return bigger ? Outcome<bool>(true) : equal(c.meter(), a, b);
}

using C = Context&;
using V = const Value&;
using Answer = Outcome<bool>;

const Test kTests[] = {
    {"defined", 0, [](C, V v, V) -> Answer { return !v.is_undefined(); }},
    {"undefined", 0, [](C, V v, V) -> Answer { return v.is_undefined(); }},
    {"none", 0, [](C, V v, V) -> Answer { return v.is_none(); }},
    {"boolean", 0, [](C, V v, V) -> Answer { return v.get<bool>() != nullptr; }},
    {"true", 0, [](C, V v, V) -> Answer { return v.get<bool>() && *v.get<bool>(); }},
    {"false", 0, [](C, V v, V) -> Answer { return v.get<bool>() && !*v.get<bool>(); }},
    {"integer", 0, [](C, V v, V) -> Answer { return v.get<Int>() != nullptr; }},
    {"float", 0, [](C, V v, V) -> Answer { return v.get<double>() != nullptr; }},
    {"number", 0, [](C, V v, V) -> Answer { return is_number(v); }},
    {"string", 0, [](C, V v, V) -> Answer { return v.text() != nullptr; }},
    {"mapping", 0, [](C, V v, V) -> Answer { return v.dict() != nullptr; }},
    {"iterable", 0, [](C, V v, V) -> Answer { return is_iterable(v); }},
    {"sequence", 0, [](C, V v, V) -> Answer { return is_sequence(v); }},
    {"callable", 0, [](C, V v, V) -> Answer { return is_callable(v); }},
    {"upper", 0, [](C c, V v, V) -> Answer { return has_case(c, v, true); }},
    {"lower", 0, [](C c, V v, V) -> Answer { return has_case(c, v, false); }},
    {"escaped", 0, [](C, V, V) -> Answer { return false; }},
    {"sameas", 1, [](C, V v, V a) -> Answer { return is_same(v, a); }},
    {"in", 1, [](C c, V v, V a) -> Answer { return contains(c.meter(), a, v); }},
    {"eq", 1, [](C c, V v, V a) -> Answer { return equal(c.meter(), v, a); }},
    {"equalto", 1, [](C c, V v, V a) -> Answer { return equal(c.meter(), v, a); }},
    {"==", 1, [](C c, V v, V a) -> Answer { return equal(c.meter(), v, a); }},
    {"ne", 1,
     [](C c, V v, V a) -> Answer {
       return equal(c.meter(), v, a).map([](bool same) { return !same; });
     }},
    {"!=", 1,
     [](C c, V v, V a) -> Answer {
       return equal(c.meter(), v, a).map([](bool same) { return !same; });
     }},
    {"lt", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), v, a); }},
    {"lessthan", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), v, a); }},
    {"<", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), v, a); }},
    {"gt", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), a, v); }},
    {"greaterthan", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), a, v); }},
    {">", 1, [](C c, V v, V a) -> Answer { return less(c.meter(), a, v); }},
    {"ge", 1, [](C c, V v, V a) -> Answer { return at_least(c, v, a); }},
    {">=", 1, [](C c, V v, V a) -> Answer { return at_least(c, v, a); }},
    {"le", 1, [](C c, V v, V a) -> Answer { return at_least(c, a, v); }},
    {"<=", 1, [](C c, V v, V a) -> Answer { return at_least(c, a, v); }},
    {"odd", 0, [](C, V v, V) -> Answer { return whole(v).map([](Int n) { return n % 2 != 0; }); }},
    {"even", 0, [](C, V v, V) -> Answer { return whole(v).map([](Int n) { return n % 2 == 0; }); }},
    {"divisibleby", 1,
     [](Context&, const Value& v, const Value& a) -> Outcome<bool> {
       TRY(const Int n, whole(v));
       TRY(const Int by, whole(a));
       if (by == 0) return fault("divisibleby(0)");
       return n % by == 0;
     }},
    {"filter", 0, [](C, V v, V) -> Answer { return v.text() && find_filter(v.text()->bytes()); }},
    {"test", 0, [](C, V v, V) -> Answer { return v.text() && find_test(v.text()->bytes()); }},
};

}  // namespace

const Test* find_test(std::string_view name) {
  for (const Test& test : kTests)
    if (test.name == name) return &test;
  return nullptr;
}

Outcome<bool> run_test(Context& context, const Test& test, const Value& value,
                       const Arguments& arguments) {
  if (!arguments.named.empty() || arguments.positional.size() != test.arguments)
    return fault(fmt::format("the test '{}' takes {} argument(s)", test.name, test.arguments));
  return test.run(context, value, test.arguments ? arguments.positional[0] : Value());
}

}  // namespace ponder::text::jinja
