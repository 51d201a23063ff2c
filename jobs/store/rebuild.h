#pragma once
// What becomes of a damaged database. Its files are put aside under a time stamp and never changed;
// what can be read and proven of them becomes a new database under the old name:
//   whole jobs (every checksum and rule holds) as they were;
//   of a live job with damaged text the text before that, from which it goes on;
//   what was lost of others as failed(storage), "lost: storage damage", with the text before that;
//   nothing else. An id that cannot be read is not known any more.
// A report is left beside them; as long as it lies there, /health says its first line.
//
// Every step may be cut short by a crash: the new database is made whole under another name, and
// from its last rename on the next start finishes the rest (finish_rebuild).
#include <filesystem>
#include <string>
#include <string_view>

#include "engine/base/error.h"
#include "jobs/store/log_check.h"

namespace ponder::jobs {

/// `why` goes into the report. Rows that run under `instance` are being worked on. Nobody has the
/// database open. An error leaves everything as it was.
Result<void> rebuild(const std::filesystem::path& file, std::string_view why, const LogState& log,
                     std::string_view instance);

/// Finishes what a crash cut short, and removes what it left half-made.
Result<void> finish_rebuild(const std::filesystem::path& file);

/// The first line of the newest report beside `file`; empty: there is none. Any thread.
std::string damage_note(const std::filesystem::path& file);

/// Where a database lies that is not whole yet.
std::filesystem::path fresh_path(const std::filesystem::path& file);
/// Removes a database of ours that is not `ponder.db`, with its log.
void remove_database(const std::filesystem::path& file);

}  // namespace ponder::jobs
