#pragma once
// value.name, value[key] and value[a:b:c].
#include "engine/text/jinja/callable.h"

namespace ponder::text::jinja {

/// A method as a value, a namespace's or loop's member, a dict's key; undefined where there is
/// none. Of an undefined value it is a fault.
Outcome<Value> get_attribute(Context& context, const Value& value, std::string_view name);
/// Items first, then attributes.
Outcome<Value> get_item(Context& context, const Value& value, const Value& key);
/// Each bound may be absent (nullptr or none).
Outcome<Value> get_slice(Context& context, const Value& value, const Value* start,
                         const Value* stop, const Value* stride);

}  // namespace ponder::text::jinja
