#pragma once
// SQLite's write-ahead log read as bytes, before SQLite has it open. SQLite replays the log up to
// the first frame whose checksum does not hold and drops what follows without a word: right after
// a write that a crash cut short, wrong after a flipped bit, which then takes every later commit
// along. Here the two are told apart. Source of the format: sqlite.org/fileformat2.html, 4.
#include <cstdint>
#include <filesystem>

#include "engine/base/error.h"

namespace ponder::jobs {

struct LogState {
  /// whole: nothing is missed. torn: the last write is not whole, as a crash leaves it or damage to
  /// that very write; the index of the log (-shm) would tell them apart, and is not there. cut: the
  /// index knows of commits that are not in the log. damaged: whole commits lie behind a frame that
  /// does not hold.
  enum class Verdict { whole, torn, cut, damaged };
  Verdict verdict = Verdict::whole;
  std::int64_t frames = 0;       ///< that SQLite will replay or skip as uncommitted
  std::int64_t lost_frames = 0;  ///< behind the one that does not hold, each whole
  std::int64_t lost_commits = 0;
};

/// `index` may be missing: a power cut leaves any of its states. A log that is not there, that
/// cannot be read, or that is empty, is whole.
Result<LogState> check_log(const std::filesystem::path& log, const std::filesystem::path& index);

/// Makes the frames behind the damaged one count again, by new checksums all along. The damaged one
/// counts as well: what is wrong in it is then damage to a page, found by other means. For a copy.
Result<void> mend_log(const std::filesystem::path& log);

}  // namespace ponder::jobs
