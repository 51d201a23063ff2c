#include "jobs/store/rebuild.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <vector>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/unique_fd.h"
#include "jobs/store/database_file.h"
#include "jobs/store/migrate.h"
#include "jobs/store/salvage.h"
#include "jobs/store/schema.h"
#include "jobs/store/sqlite.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr std::size_t kSetsKept = 3;
constexpr const char* kRebuilt = ".rebuilt-";
constexpr const char* kAside = ".damaged-";
constexpr const char* kReport = ".txt";

fs::path with(const fs::path& file, std::string_view suffix) {
  return file.string() + std::string(suffix);
}

/// Names beside `file` that go on with `suffix`: what follows it, sorted.
std::vector<std::string> tails(const fs::path& file, std::string_view suffix) {
  std::vector<std::string> found;
  const std::string prefix = file.filename().string() + std::string(suffix);
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ec)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(prefix)) found.push_back(name.substr(prefix.size()));
  }
  std::sort(found.begin(), found.end());
  return found;
}

/// The stamps of what was put aside, oldest first.
std::vector<std::string> stamps_of(const fs::path& file) {
  std::vector<std::string> stamps;
  for (const std::string& tail : tails(file, kAside))
    if (tail.ends_with(kReport)) stamps.push_back(tail.substr(0, tail.size() - 4));
  return stamps;
}

/// The header of a database of ours, as far as it is always the same. For a copy.
Result<void> mend_header(const fs::path& copy) {
  const UniqueFd fd(::open(copy.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  if (!fd) return fail(ErrorCode::storage, fmt::format("cannot open {}", copy.string()), kMendDisk);
  const auto put = [&](off_t at, std::string_view bytes) {
    return ::pwrite(fd.get(), bytes.data(), bytes.size(), at) == static_cast<ssize_t>(bytes.size());
  };
  using namespace std::string_view_literals;
  const bool done = put(0, "SQLite format 3\0"sv) && put(16, "\x10\x00"sv) &&  // 4,096 a page
                    put(18, "\x02\x02\x00\x40\x20\x20"sv) &&                   // WAL, fixed parts
                    put(44, "\x00\x00\x00\x04"sv) &&                           // schema format
                    put(56, "\x00\x00\x00\x01"sv) &&                           // UTF-8
                    put(72, std::string(20, '\0'));
  if (!done)
    return fail(ErrorCode::storage, fmt::format("cannot write {}", copy.string()), kMendDisk);
  return {};
}

/// A copy of the database and its log that may be written to, opened. An error of the disk is an
/// error; what cannot be opened at all is none.
Result<std::optional<Database>> view_of(const fs::path& file, const fs::path& copy, bool mend) {
  remove_database(copy);
  std::error_code ec;
  if (fs::exists(file, ec)) TRY_VOID(copy_private(file, copy));
  if (file_bytes(copy) < 512) return std::optional<Database>();
  TRY_VOID(mend_header(copy));
  if (fs::exists(log_of(file), ec)) {
    TRY_VOID(copy_private(log_of(file), log_of(copy)));
    if (mend) TRY_VOID(mend_log(log_of(copy)));
  }
  Result<Database> db = Database::open(copy, Access::salvage);
  if (!db) return fail(db.error());
  if (!mend_schema(*db)) return std::optional<Database>();
  return std::optional<Database>(std::move(*db));
}

std::string in_words(std::int64_t count, std::string_view rest_of_one, std::string_view of_many) {
  return fmt::format("{} {}", count, count == 1 ? rest_of_one : of_many);
}

/// The first line is for /health; then one line for each job that lost something.
std::string report_of(const SalvageCounts& counts, std::string_view why, std::int64_t now_ms,
                      const fs::path& aside) {
  std::int64_t whole = 0, cut = 0, lost = 0;
  std::string lines;
  for (const auto& [id, job] : counts.jobs) {
    if (job.fate == Salvaged::Fate::whole) {
      ++whole;
      continue;
    }
    ++(job.fate == Salvaged::Fate::cut ? cut : lost);
    lines += fmt::format("{}  {}  {}\n", id,
                         job.fate == Salvaged::Fate::cut ? "goes on without" : "lost", job.what);
  }
  std::string first =
      fmt::format("the job database was damaged ({}) and was rebuilt at {}: {}", why,
                  rfc3339(now_ms), in_words(whole, "job is whole", "jobs are whole"));
  if (cut > 0)
    first += fmt::format(", {} from an earlier point", in_words(cut, "goes on", "go on"));
  if (lost > 0) first += fmt::format(", {} what was lost", in_words(lost, "says", "say"));
  if (counts.unknown > 0)
    first += fmt::format(", {} not known any more", in_words(counts.unknown, "is", "are"));
  if (counts.jobs.empty()) first += "; no job could be read";
  first += fmt::format("; the damaged files are kept as {}*; this is said until {}{} is removed",
                       aside.filename().string(), aside.filename().string(), kReport);
  return first + "\n\n" + lines;
}

/// Old sets go, the newest stay. The report last: it is what names the set.
void drop_old_sets(const fs::path& file) {
  const std::vector<std::string> stamps = stamps_of(file);
  std::error_code ec;
  for (std::size_t i = 0; i + kSetsKept < stamps.size(); ++i)
    for (const char* part : {"-wal", "-shm", "", kReport})
      fs::remove(with(file, kAside + stamps[i] + part), ec);
}

/// Builds the new database at `fresh` from the views of the old one.
Result<SalvageCounts> build(const fs::path& file, const fs::path& fresh, const LogState& log,
                            std::int64_t now_ms, std::string_view instance) {
  SalvageCounts counts;
  const bool mend = log.verdict == LogState::Verdict::damaged;
  TRY(Database into, Database::open(fresh));
  TRY_VOID(migrate(into, fresh));
  TRY(const std::vector<std::string> triggers, take_triggers(into));
  // With the frames behind the damaged one, and as SQLite sees it: each has what the other lost.
  for (const bool mended : {true, false}) {
    if (!mended && !mend) continue;
    const fs::path copy = with(file, mended ? ".salvage" : ".salvage2");
    TRY(std::optional<Database> view, view_of(file, copy, mended && mend));
    if (view) {
      const Result<void> done = salvage(*view, into, now_ms, instance, counts);
      if (!done && !is_damage(done.error())) {
        view.reset();
        remove_database(copy);
        return fail(done.error());
      }
    }
    view.reset();
    remove_database(copy);
  }
  TRY_VOID(put_triggers(into, triggers));
  TRY_VOID(into.transaction(Durability::full, [] { return Result<void>(); }));
  into.checkpoint(true);
  if (into.sync_failed()) return fail(ErrorCode::storage, "the disk refused to sync", kMendDisk);
  return counts;
}
}  // namespace

fs::path fresh_path(const fs::path& file) {
  return with(file, ".fresh");
}

void remove_database(const fs::path& file) {
  std::error_code ec;
  for (const char* part : {"-wal", "-shm", "-journal", ""})
    fs::remove(with(file, part), ec);
}

Result<void> rebuild(const fs::path& file, std::string_view why, const LogState& log,
                     std::string_view instance) {
  const std::int64_t now_ms = system_clock().wall_ms();
  std::string stamp;
  for (const char c : rfc3339(now_ms))
    if ((c >= '0' && c <= '9') || c == 'T') stamp += c;  // sorts by time, to the millisecond
  const fs::path aside = with(file, kAside + stamp);
  const fs::path report = with(aside, kReport);
  const fs::path fresh = fresh_path(file);
  const auto make = [&]() -> Result<void> {
    remove_database(fresh);
    TRY(const SalvageCounts counts, build(file, fresh, log, now_ms, instance));
    TRY_VOID(sync_file(fresh));
    const std::string text = report_of(counts, why, now_ms, aside);
    TRY_VOID(write_private(report, text));
    TRY_VOID(rename_file(fresh, with(file, kRebuilt + stamp)));
    return sync_directory(file.parent_path());
  };
  if (const Result<void> made = make(); !made) {
    remove_database(fresh);
    for (const char* copy : {".salvage", ".salvage2"})
      remove_database(with(file, copy));
    std::error_code ec;
    fs::remove(report, ec);
    return fail(ErrorCode::storage,
                fmt::format("{} is damaged ({}), and what can be read of it could not be saved: {}",
                            file.string(), why, made.error().message),
                fmt::format("make room for {} MiB there; nothing was changed",
                            2 * (file_bytes(file) + file_bytes(log_of(file))) / (1 << 20) + 1));
  }
  TRY_VOID(finish_rebuild(file));
  log_warn(damage_note(file));
  return {};
}

Result<void> finish_rebuild(const fs::path& file) {
  for (const char* part : {".fresh", ".salvage", ".salvage2"})
    if (!tails(file, part).empty()) remove_database(with(file, part));
  for (const std::string& stamp : tails(file, kRebuilt)) {
    const fs::path rebuilt = with(file, kRebuilt + stamp);
    const fs::path aside = with(file, kAside + stamp);
    std::error_code ec;
    // Whatever lies under the old names is the damaged one until the last rename.
    for (const char* part : {"-wal", "-shm", ""})
      if (fs::exists(fs::symlink_status(with(file, part), ec)))
        TRY_VOID(rename_file(with(file, part), with(aside, part)));
    TRY_VOID(sync_directory(file.parent_path()));
    TRY_VOID(rename_file(rebuilt, file));
    TRY_VOID(sync_directory(file.parent_path()));
    drop_old_sets(file);
  }
  return {};
}

std::string damage_note(const fs::path& file) {
  const std::vector<std::string> stamps = stamps_of(file);
  if (stamps.empty()) return {};
  std::ifstream in(with(file, kAside + stamps.back() + kReport));
  std::string line;
  std::getline(in, line);
  return line;
}

}  // namespace ponder::jobs
