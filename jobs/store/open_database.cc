#include "jobs/store/open_database.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "engine/base/filesystem_kind.h"
#include "engine/base/log.h"
#include "jobs/store/database_file.h"
#include "jobs/store/log_check.h"
#include "jobs/store/migrate.h"
#include "jobs/store/rebuild.h"
#include "jobs/store/schema.h"
#include "jobs/store/statements.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kCheckMs = 5000;
constexpr std::int64_t kEmptyLogBytes = 32;
constexpr int kBusyMs = 50;  // the queue's thread must not wait for others

/// Lies there while a database is being made: an empty one without it is not the trace of a first
/// start that was cut short.
fs::path birth_mark(const fs::path& file) {
  return file.string() + ".new";
}

Result<void> create(const fs::path& file) {
  std::error_code ec;
  if (!fs::exists(birth_mark(file), ec)) TRY_VOID(write_private(birth_mark(file), ""));
  TRY_VOID(sync_directory(file.parent_path()));
  {
    TRY(Database db, Database::open(file));
    TRY_VOID(migrate(db, file));
    db.checkpoint(true);
    if (db.sync_failed()) return fail(ErrorCode::storage, "the disk refused to sync", kMendDisk);
  }
  TRY_VOID(sync_directory(file.parent_path()));
  return {};
}

/// Rows whose checksum does not hold, or a state that this build does not know.
Result<void> check_rows(Database& db) {
  TRY(const std::int64_t damaged,
      db.pragma_integer("SELECT count(*) FROM job WHERE NOT (" PONDER_HOLDS ")"));
  if (damaged > 0) return fail(db.damage(fmt::format("{} rows of jobs", damaged)));
  return {};
}

/// False: not checked to its end.
Result<bool> check(Database& db, const fs::path& file) {
  TRY(const std::int64_t version, schema_version(db, file));
  if (version == 0) return true;
  TRY_VOID(check_schema(db, version));
  TRY(const bool whole, db.check(kCheckMs));
  if (version == newest_schema()) TRY_VOID(check_rows(db));
  return whole;
}

/// What is damaged, out of "... is damaged: WHAT".
std::string what_of(const std::string& message) {
  const std::size_t at = message.rfind("damaged: ");
  return at == std::string::npos ? "its structure" : message.substr(at + 9);
}

/// What people should know of a log that ends too early; nothing can be saved of what is missing.
std::string note_of(const LogState& log) {
  if (log.verdict == LogState::Verdict::torn)
    return "the last write before the daemon ended was not whole and is gone: a job that was "
           "accepted in that moment may not be known";
  if (log.verdict == LogState::Verdict::cut)
    return "the end of the log of the job database is missing, by a power cut or because it was "
           "removed: jobs that were accepted last may not be known, and ends that came last are "
           "worked out again";
  return {};
}

/// Whether a file that says it is ours has what the header of a database of ours always has. SQLite
/// would take some of it for that of a newer SQLite's file, and refuse. nullopt: unreadable.
std::optional<bool> header_holds(const RawFile& file) {
  std::array<unsigned char, 100> header{};
  if (file.size() < static_cast<std::int64_t>(header.size())) return false;
  if (!file.read(0, header.data(), header.size())) return std::nullopt;
  const auto number = [&](std::size_t at) {
    return std::uint32_t{header[at]} << 24 | std::uint32_t{header[at + 1]} << 16 |
           std::uint32_t{header[at + 2]} << 8 | header[at + 3];
  };
  if (std::memcmp(header.data(), "SQLite format 3", 16) != 0) return false;
  if (number(68) != kApplicationId) return true;  // for schema_version() to judge
  const auto is_version = [](unsigned char byte) { return byte == 1 || byte == 2; };
  const auto zero = [](unsigned char byte) { return byte == 0; };
  return is_version(header[18]) && is_version(header[19]) && header[20] == 0 && header[21] == 64 &&
         header[22] == 32 && header[23] == 32 && number(44) >= 1 && number(44) <= 4 &&
         number(56) == 1 && std::all_of(&header[72], &header[92], zero);
}

/// What can be told before SQLite has them open.
struct Files {
  bool is_new = false;  ///< there is none yet
  LogState log;
  std::string damage;  ///< why they cannot be opened as they are; empty: they can
};
Result<Files> look_at(const fs::path& file) {
  std::error_code ec;
  Files files;
  const RawFile database(file, RawFile::Kind::database);
  const auto unreadable = [&] {
    return fail(ErrorCode::storage, fmt::format("{} cannot be read", file.string()),
                "mend its permissions or the disk; nothing was changed");
  };
  const bool logged = RawFile(log_of(file), RawFile::Kind::log).size() > kEmptyLogBytes;
  const bool there = fs::exists(fs::symlink_status(file, ec));
  // A disk that fails must not pass for a database that is empty.
  if (there && (!database.is_open() || database.size() < 0)) return unreadable();
  if (database.size() == 0 && (fs::exists(birth_mark(file), ec) || (!there && !logged))) {
    files.is_new = true;
    return files;
  }
  TRY(files.log, check_log(log_of(file), log_index_of(file)));
  const std::string name = file.filename().string();
  if (!there && logged)
    files.damage = name + " is missing beside its log";
  else if (database.size() == 0)
    files.damage = name + " is empty";
  else if (const auto holds = header_holds(database); !holds)
    return unreadable();
  else if (!*holds)
    files.damage = "its header";
  else if (files.log.verdict == LogState::Verdict::damaged)
    files.damage = fmt::format("its log does not hold at frame {}, with {} commits behind it",
                               files.log.frames + 1, files.log.lost_commits);
  return files;
}
}  // namespace

Result<OpenedDatabase> open_database(const fs::path& file, const OpenRequest& request) {
  TRY(const fs::path path, usable_path(file));
  TRY_VOID(finish_rebuild(path));
  if (const FilesystemKind kind = filesystem_kind_of(path.parent_path()); kind.in_memory)
    log_warn(fmt::format("{} is on {}: jobs there are gone when the machine restarts",
                         path.parent_path().string(), kind.name));
  std::error_code ec;
  if (fs::exists(fs::symlink_status(path, ec))) TRY_VOID(prepare_file(path));
  TRY(const Files files, look_at(path));
  const LogState& log = files.log;
  std::string damage = request.damage.empty() ? files.damage : what_of(request.damage);
  if (files.is_new && damage.empty()) TRY_VOID(create(path));
  bool rebuilt = false;
  for (;;) {
    if (!damage.empty()) {
      log_error(fmt::format("{} is damaged ({}): what can be read of it is saved", path.string(),
                            damage));
      TRY_VOID(rebuild(path, damage, log, request.instance));
      rebuilt = true;
      damage.clear();
    }
    Result<Database> db = Database::open(path);
    Result<bool> checked = db ? check(*db, path) : fail(db.error());
    if (checked) {
      const Result<void> migrated = migrate(*db, path);
      if (migrated) {
        if (!*checked)
          log_info("the job database is large; its check goes on while nothing else is done");
        db->checkpoint(true);
        if (db->sync_failed())
          return fail(ErrorCode::storage, "the disk refused to sync", kMendDisk);
        db->set_patience(kBusyMs);
        fs::remove(birth_mark(path), ec);
        OpenedDatabase out{std::move(*db), *checked, {}};
        if (!rebuilt) out.note = note_of(log);
        if (!out.note.empty()) log_warn(out.note);
        return out;
      }
      checked = fail(migrated.error());
    }
    if (!is_damage(checked.error()) || rebuilt) return fail(checked.error());
    damage = what_of(checked.error().message);
  }
}

}  // namespace ponder::jobs
