#pragma once
// Values as text, exactly as Python prints them: str(), repr() and json.dumps().
#include <string>

#include "engine/text/jinja/value.h"

namespace ponder::text::jinja {

/// str(value); undefined is empty. Strings are appended with their marks, all else is the
/// caller's.
Outcome<void> print(Meter& meter, const Value& value, MarkedText& out);
/// str(value) as a string value; a string is itself.
Outcome<Value> to_text(ValueMaker& maker, const Value& value);
Outcome<std::string> repr(Meter& meter, const Value& value);

struct JsonStyle {
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  std::string indent = {};  ///< of one level
  bool indented = false;    ///< each item on a line of its own
  bool ascii = false;
  bool sort_keys = false;
};
/// json.dumps(value, ensure_ascii=False, ...); keys in their order, nothing escaped for HTML.
Outcome<std::string> dump_json(Meter& meter, const Value& value, const JsonStyle& style);

std::string format_int(Int n);
/// repr() of a float: the shortest digits that read back the same.
std::string format_double(double d);

}  // namespace ponder::text::jinja
