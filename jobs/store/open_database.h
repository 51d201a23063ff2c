#pragma once
// The way to a database that can be worked with: a new one, the one that is there, or, where that
// one is damaged, what could be saved of it. The caller holds the instance lock.
#include <filesystem>
#include <string>
#include <string_view>

#include "jobs/store/sqlite.h"

namespace ponder::jobs {

struct OpenedDatabase {
  Database db;
  bool checked = true;  ///< false: too big for the check at start; it goes on in idle times
  std::string note;     ///< what people should know of this start; empty: nothing
};

struct OpenRequest {
  /// What is known of its damage already; empty: it is looked for.
  std::string damage = {};
  /// Rows that run under this one are worked on while the database is rebuilt.
  std::string instance = {};
};

/// Looks at the log's bytes, opens, checks structure and rows within five seconds, rebuilds what is
/// damaged (rebuild.h), migrates, and writes the log into the database file, so that what another
/// life of this program could not sync is written once more.
Result<OpenedDatabase> open_database(const std::filesystem::path& file,
                                     const OpenRequest& request = {});

}  // namespace ponder::jobs
