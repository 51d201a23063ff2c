#pragma once
// The operators between values, with Python's rules.
#include "engine/text/jinja/value.h"

namespace ponder::text::jinja {

enum class Operator {
  eq,
  ne,
  lt,
  le,
  gt,
  ge,
  in,
  not_in,
  add,
  subtract,
  multiply,
  divide,
  floor_divide,
  modulo,
  power
};

/// + - * / // % **; whole numbers past 128 bits, and repetitions past the limits, are faults.
Outcome<Value> arithmetic(ValueMaker& maker, Operator op, const Value& a, const Value& b);
/// == != < <= > >= in, not in.
Outcome<bool> compare(Meter& meter, Operator op, const Value& a, const Value& b);
/// -a, +a.
Outcome<Value> signed_value(bool negative, const Value& a);
/// "text %s" % arguments: %s %r %d %i %f %x %% with flags 0 and -, width and precision.
Outcome<Value> percent_format(ValueMaker& maker, const MarkedText& format, const Value& arguments);

}  // namespace ponder::text::jinja
