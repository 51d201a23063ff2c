#pragma once
// Takes jobs out of a database that is damaged and puts what holds into one that is whole.
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "jobs/store/sqlite.h"

namespace ponder::jobs {

/// What came of one job: whole (nothing is missed), cut (live, goes on from an earlier point of its
/// text), lost (failed(storage), or its text is not all there).
struct Salvaged {
  enum class Fate { lost, cut, whole };
  Fate fate = Fate::lost;
  std::int64_t seq = 0;
  std::string what;  ///< what was lost, for the report
};

struct SalvageCounts {
  std::map<std::string, Salvaged> jobs;  ///< by id
  std::int64_t unknown = 0;              ///< jobs of which not even the id can be read
};

/// Adds the jobs of `from` to `into`, which holds nothing else. May be called for a second view of
/// the same database: what it has better replaces what is there. `instance`: rows that run under it
/// are being worked on, and must not go back in their text.
Result<void> salvage(Database& from, Database& into, std::int64_t now_ms, std::string_view instance,
                     SalvageCounts& counts);

/// The triggers of the schema speak of a job's life and not of its rescue: they are put away, and
/// put back when it is done.
Result<std::vector<std::string>> take_triggers(Database& db);
Result<void> put_triggers(Database& db, const std::vector<std::string>& triggers);

}  // namespace ponder::jobs
