#pragma once
// A schema's combinations multiplied out: what it says as a list of schemas without $ref, allOf,
// anyOf and oneOf, any of which may hold.
#include <vector>

#include "engine/base/error.h"
#include "engine/base/json.h"

namespace ponder::text {

/// bad_request with param "schema".
tl::unexpected<Error> bad_schema(std::string message);

/// What one schema may still cost, in bytes of it copied or compared: a small text can ask for very
/// much work, since parts may be referred to many times.
struct SchemaWork {
  std::size_t left = std::size_t{64} << 20;
  /// bad_request when it is spent.
  Result<void> spend(std::size_t bytes);
};

/// The alternatives of `schema`, a part of `root`. Schemas inside them (of properties, items) are
/// as they were, or {"allOf": [...]} where two had to hold. "items" as a list comes as
/// "prefixItems", "const" as "enum", "type" as a list; keywords that only describe are left out.
/// Empty: nothing fits it.
Result<std::vector<json::object>> schema_alternatives(const json::value& root,
                                                      const json::value& schema, SchemaWork& work);

}  // namespace ponder::text
