#include "engine/text/jinja/operators.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ponder::text::jinja {
namespace {

std::string_view symbol_of(Operator op) {
  switch (op) {
    case Operator::eq:
      return "==";
    case Operator::ne:
      return "!=";
    case Operator::lt:
      return "<";
    case Operator::le:
      return "<=";
    case Operator::gt:
      return ">";
    case Operator::ge:
      return ">=";
    case Operator::in:
      return "in";
    case Operator::not_in:
      return "not in";
    case Operator::add:
      return "+";
    case Operator::subtract:
      return "-";
    case Operator::multiply:
      return "*";
    case Operator::divide:
      return "/";
    case Operator::floor_divide:
      return "//";
    case Operator::modulo:
      return "%";
    case Operator::power:
      return "**";
  }
  return "";
}

tl::unexpected<Fault> wrong_types(Operator op, const Value& a, const Value& b) {
  return fault(fmt::format("cannot compute {} {} {}", type_name(a), symbol_of(op), type_name(b)));
}
tl::unexpected<Fault> too_large() {
  return fault("a number is too large");
}

Outcome<Value> power_of(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) return fault("0 to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  while (exponent > 0) {
    if (exponent & 1)
      if (__builtin_mul_overflow(result, base, &result)) return too_large();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return too_large();
  }
  return Value(result);
}

Outcome<Value> of_ints(Operator op, Int a, Int b) {
  Int result = 0;
  switch (op) {
    case Operator::add:
      return __builtin_add_overflow(a, b, &result) ? Outcome<Value>(too_large()) : Value(result);
    case Operator::subtract:
      return __builtin_sub_overflow(a, b, &result) ? Outcome<Value>(too_large()) : Value(result);
    case Operator::multiply:
      return __builtin_mul_overflow(a, b, &result) ? Outcome<Value>(too_large()) : Value(result);
    case Operator::power:
      return power_of(a, b);
    default:
      break;
  }
  if (b == 0) return fault("division by zero");
  if (op == Operator::divide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (b == -1) {  // the one case in which the quotient may overflow
    if (op == Operator::modulo) return Value(Int{0});
    return __builtin_sub_overflow(Int{0}, a, &result) ? Outcome<Value>(too_large()) : Value(result);
  }
  const Int rest = a % b;
  const bool adjust = rest != 0 && (rest < 0) != (b < 0);
  if (op == Operator::modulo) return Value(adjust ? rest + b : rest);
  return Value(adjust ? a / b - 1 : a / b);
}

Outcome<Value> of_doubles(Operator op, double a, double b) {
  switch (op) {
    case Operator::add:
      return Value(a + b);
    case Operator::subtract:
      return Value(a - b);
    case Operator::multiply:
      return Value(a * b);
    case Operator::power: {
      if (a == 0 && b < 0) return fault("0 to a negative power");
      const double result = std::pow(a, b);
      if (std::isnan(result) && !std::isnan(a) && !std::isnan(b))
        return fault("a negative number to a fractional power");
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return too_large();
      return Value(result);
    }
    default:
      break;
  }
  if (b == 0) return fault("division by zero");
  if (op == Operator::divide) return Value(a / b);
  double rest = std::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    rest += b;
    quotient -= 1;
  }
  if (op == Operator::modulo) return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  double whole = std::floor(quotient);
  if (quotient - whole > 0.5) whole += 1;
  return Value(quotient == 0 ? std::copysign(0.0, a / b) : whole);
}

Outcome<Value> repeat_text(ValueMaker& maker, const MarkedText& text, Int times) {
  if (times <= 0 || text.empty()) return maker.text(MarkedText());
  const Int size = static_cast<Int>(text.size());
  if (times > maker.meter().limits().output_bytes / size)
    return fault("the template makes a text of more than 16 MiB");
  TRY_VOID(maker.meter().length(static_cast<std::size_t>(size * times)));
  // By doubling: few appends, however short the text.
  const auto whole = static_cast<std::size_t>(size * times);
  MarkedText result = text;
  while (result.size() < whole)
    result.append(result.slice(0, std::min(result.size(), whole - result.size())));
  return maker.text(std::move(result));
}

Outcome<Value> repeat_list(ValueMaker& maker, const List& list, Int times) {
  std::vector<Value> items;
  if (times > 0 && !list.items.empty()) {
    const Int size = static_cast<Int>(list.items.size());
    if (times > maker.meter().limits().steps / size)
      return fault("the template takes more than 1,000,000 steps");
    TRY_VOID(maker.meter().step(static_cast<std::int64_t>(size * times)));
    for (Int i = 0; i < times; ++i)
      items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return maker.list(std::move(items), list.kind);
}

bool is_plain(const List* list) {
  return list && (list->kind == List::Kind::list || list->kind == List::Kind::tuple);
}

}  // namespace

Outcome<Value> arithmetic(ValueMaker& maker, Operator op, const Value& a, const Value& b) {
  Int m = 0, n = 0;
  if (a.as_int(m) && b.as_int(n)) return of_ints(op, m, n);
  double x = 0, y = 0;
  if (a.as_double(x) && b.as_double(y)) return of_doubles(op, x, y);
  const MarkedText *s = a.text(), *t = b.text();
  const List *p = a.list(), *q = b.list();
  if (op == Operator::add && s && t) {
    TRY_VOID(maker.meter().length(s->size() + t->size()));
    MarkedText joined = *s;
    joined.append(*t);
    return maker.text(std::move(joined));
  }
  if (op == Operator::add && is_plain(p) && is_plain(q) && p->kind == q->kind) {
    TRY_VOID(
        maker.meter().step(static_cast<std::int64_t>((p->items.size() + q->items.size()) / 2)));
    std::vector<Value> items = p->items;
    items.insert(items.end(), q->items.begin(), q->items.end());
    return maker.list(std::move(items), p->kind);
  }
  if (op == Operator::multiply) {
    if (s && b.as_int(n)) return repeat_text(maker, *s, n);
    if (t && a.as_int(m)) return repeat_text(maker, *t, m);
    if (is_plain(p) && b.as_int(n)) return repeat_list(maker, *p, n);
    if (is_plain(q) && a.as_int(m)) return repeat_list(maker, *q, m);
  }
  if (op == Operator::modulo && s) return percent_format(maker, *s, b);
  return wrong_types(op, a, b);
}

Outcome<bool> compare(Meter& meter, Operator op, const Value& a, const Value& b) {
  const auto negated = [](bool result) { return !result; };
  switch (op) {
    case Operator::eq:
      return equal(meter, a, b);
    case Operator::ne:
      return equal(meter, a, b).map(negated);
    case Operator::in:
      return contains(meter, b, a);
    case Operator::not_in:
      return contains(meter, b, a).map(negated);
    case Operator::lt:
      return less(meter, a, b);
    case Operator::gt:
      return less(meter, b, a);
    default:
      break;
  }
  TRY(const bool strictly, op == Operator::le ? less(meter, a, b) : less(meter, b, a));
  return strictly ? Outcome<bool>(true) : equal(meter, a, b);
}

Outcome<Value> signed_value(bool negative, const Value& a) {
  Int n = 0, result = 0;
  double d = 0;
  if (a.as_int(n)) {
    if (!negative) return Value(n);
    return __builtin_sub_overflow(Int{0}, n, &result) ? Outcome<Value>(too_large()) : Value(result);
  }
  if (a.as_double(d)) return Value(negative ? -d : d);
  return fault(fmt::format("a {} has no sign", type_name(a)));
}

}  // namespace ponder::text::jinja
