#pragma once
// The table of tests: what may stand after `is`.
#include <string_view>

#include "engine/text/jinja/callable.h"

namespace ponder::text::jinja {

struct Test {
  std::string_view name;
  std::size_t arguments = 0;
  Outcome<bool> (*run)(Context&, const Value& value, const Value& argument);
};

/// nullptr for a name that is not known.
const Test* find_test(std::string_view name);

/// Runs it; a wrong number of arguments is a fault.
Outcome<bool> run_test(Context& context, const Test& test, const Value& value,
                       const Arguments& arguments);

}  // namespace ponder::text::jinja
