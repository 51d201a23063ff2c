#pragma once
// The schema as text: what a database of ours must say it is made of. A flipped bit in that text
// makes a column, a rule or a table another one, and SQLite believes it.
#include <cstdint>

#include "jobs/store/sqlite.h"

namespace ponder::jobs {

/// Damage if a table, index or trigger says something else than its version's migrations made. A
/// trigger that is missing is nobody's flipped bit, and let be.
Result<void> check_schema(Database& db, std::int64_t version);

/// Of a database opened for salvage: puts the text of the one table or index right that is not of
/// any version. Triggers go. For a copy.
Result<void> mend_schema(Database& db);

}  // namespace ponder::jobs
