#pragma once
// Values of a tool call, which the model writes as plain text, typed by the tool's JSON schema.
// Pure.
#include <string_view>

#include "engine/base/json.h"

namespace ponder::text {

/// The `parameters` schema of the tool `name` among `tools` ({"type":"function","function":{...}}
/// or the bare function), or nullptr.
const json::object* find_parameters(const json::array& tools, std::string_view name);

/// `text` as the value of the argument `key`. Where the schema allows only strings, or says
/// nothing, the text itself; else the text read as JSON if that is of an allowed type (True, False
/// and None count as Python's words for it, 3.0 as an integer), else the text itself. `type` may
/// be a list; anyOf, oneOf, allOf, enum, const and local $ref are followed.
json::value typed_argument(const json::object* parameters, std::string_view key,
                           std::string_view text);

}  // namespace ponder::text
