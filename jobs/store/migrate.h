#pragma once
// From whatever version a database has to this build's. A change of an existing one is made on top
// of a copy that stays, so that going back to an older build costs what came since and no more.
#include <cstdint>
#include <filesystem>

#include "jobs/store/sqlite.h"

namespace ponder::jobs {

/// What the header of every database of ours says it belongs to.
inline constexpr std::int64_t kApplicationId = 0x506e6472;  // "Pndr"

/// The version of this build.
std::int64_t newest_schema();

/// The version of what is open; 0: nothing is in it yet. Refuses another program's file, and a
/// newer version by its number; a header that cannot be right is damage.
Result<std::int64_t> schema_version(Database& db, const std::filesystem::path& file);

/// Each step is one transaction. Before the first one the database, if there is one, is copied to
/// `file` + ".before-N" (N: the version it is brought to), and all such copies but the newest three
/// go. A failure, also of the copy, leaves it as it was.
Result<void> migrate(Database& db, const std::filesystem::path& file);

}  // namespace ponder::jobs
