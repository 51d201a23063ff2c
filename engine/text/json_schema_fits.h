#pragma once
// Whether a value that stands in a schema itself, in an "enum" or "const", fits the rest of it.
#include <optional>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/text/json_schema_merge.h"

namespace ponder::text {

/// A bound of numbers; open: the bound itself does not fit.
struct NumberBound {
  double value = 0;
  bool open = false;
};
/// What `plain` says of numbers from below or above: "minimum", or "maximum", with draft 4's true
/// or a later draft's number as the exclusive one. Nothing: it does not bound them.
std::optional<NumberBound> number_bound(const json::object& plain, bool lower);

/// Whether `value` fits `plain`, a schema as schema_alternatives() gives them, a part of `root`.
/// Holds what a grammar bounds (docs/engine.md, Output control), and numbers in full; of keywords
/// beyond that it says nothing. bad_request where a schema inside of it cannot be read, or `work`
/// is spent.
Result<bool> value_fits(const json::value& root, const json::object& plain,
                        const json::value& value, SchemaWork& work);

}  // namespace ponder::text
