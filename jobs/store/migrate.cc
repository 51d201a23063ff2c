#include "jobs/store/migrate.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <vector>

#include "engine/base/log.h"
#include "jobs/migrations.h"
#include "jobs/store/database_file.h"
#include "jobs/store/rebuild.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kFirstWithAbout = 3;
constexpr std::size_t kCopiesKept = 3;

/// The copies beside `file`, by the version they were made before, newest first.
std::vector<std::pair<int, fs::path>> copies_of(const fs::path& file) {
  std::vector<std::pair<int, fs::path>> found;
  const std::string prefix = file.filename().string() + ".before-";
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator(file.parent_path(), ec)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(prefix)) continue;
    const std::string number = name.substr(prefix.size());
    if (number.empty() || number.size() > 6 ||
        !std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; }))
      continue;
    found.emplace_back(std::stoi(number), entry.path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

Result<void> copy_before(Database& db, const fs::path& file, std::int64_t from, std::int64_t to) {
  const fs::path copy = fmt::format("{}.before-{}", file.string(), to);
  const fs::path part = copy.string() + ".part";
  std::error_code ec;
  remove_database(part);
  const auto make = [&]() -> Result<void> {
    TRY_VOID(prepare_file(part));  // 0600 whatever the umask; VACUUM INTO takes an empty file
    {
      TRY(Statement vacuum, db.prepare("VACUUM INTO ?1"));
      const std::string name = part.string();
      TRY_VOID(Cursor(vacuum).text(1, name).run());
    }
    TRY_VOID(sync_file(part));
    TRY_VOID(rename_file(part, copy));
    return sync_directory(file.parent_path());
  };
  if (const Result<void> made = make(); !made) {
    remove_database(part);
    if (is_damage(made.error())) return made;
    return fail(
        ErrorCode::storage,
        fmt::format("the job database is not brought from version {} to {}: the copy that "
                    "is made first failed: {}",
                    from, to, made.error().message),
        fmt::format("make room for {} MiB beside {}; nothing was changed",
                    (file_bytes(file) + file_bytes(log_of(file))) / (1 << 20) + 1, file.string()));
  }
  log_info(
      fmt::format("the job database is brought from version {} to {}; as it was it is kept "
                  "in {}",
                  from, to, copy.string()));
  const auto copies = copies_of(file);
  for (std::size_t i = kCopiesKept; i < copies.size(); ++i)
    fs::remove(copies[i].second, ec);
  return {};
}
}  // namespace

std::int64_t newest_schema() {
  return static_cast<std::int64_t>(std::size(kMigrations));
}

Result<std::int64_t> schema_version(Database& db, const fs::path& file) {
  TRY(const std::int64_t application, db.pragma_integer("PRAGMA application_id"));
  TRY(const std::int64_t version, db.pragma_integer("PRAGMA user_version"));
  TRY(const std::int64_t objects, db.pragma_integer("SELECT count(*) FROM sqlite_schema"));
  TRY(const std::int64_t ours,
      db.pragma_integer("SELECT count(*) FROM sqlite_schema WHERE type = 'table' AND "
                        "name IN ('job', 'request', 'state_change', 'chunk')"));
  TRY(const std::int64_t has_about,
      db.pragma_integer("SELECT count(*) FROM sqlite_schema WHERE name = 'about'"));
  const bool all_ours = ours == 4;
  if (application != kApplicationId && all_ours) return fail(db.damage("its header"));
  if (application != kApplicationId && (application != 0 || objects != 0))
    return fail(ErrorCode::storage, fmt::format("{} belongs to another program", file.string()),
                "choose another --home");
  if (objects == 0) return 0;
  if (version == 0 && all_ours) return fail(db.damage("its header"));
  if (has_about != 0) {
    // The version stands twice. One flipped bit, or going backwards, is no other build's doing.
    TRY(const std::int64_t about, db.pragma_integer("SELECT max(schema_version) FROM about"));
    const bool one_bit = std::has_single_bit(static_cast<std::uint64_t>(version ^ about));
    if (version < about || (version != about && one_bit)) return fail(db.damage("its header"));
  } else if (version >= kFirstWithAbout && version <= newest_schema()) {
    return fail(db.damage("its header"));
  }
  if (version > newest_schema()) {
    Error error{
        ErrorCode::storage,
        fmt::format("the job database has version {}, this build knows up to {}", version,
                    newest_schema()),
        fmt::format("use a ponder that knows version {}, or choose another --home", version)};
    for (const auto& [before, copy] : copies_of(file))
      if (before == newest_schema() + 1)
        error.hint += fmt::format("; {} is a copy from before it changed", copy.string());
    return fail(std::move(error));
  }
  return version;
}

Result<void> migrate(Database& db, const fs::path& file) {
  TRY(const std::int64_t version, schema_version(db, file));
  if (version > 0 && version < newest_schema()) {
    TRY(const std::int64_t jobs, db.pragma_integer("SELECT count(*) FROM job"));
    if (jobs > 0) TRY_VOID(copy_before(db, file, version, newest_schema()));
  }
  for (std::int64_t v = version; v < newest_schema(); ++v) {
    const Result<void> done = db.transaction(Durability::full, [&]() -> Result<void> {
      TRY_VOID(db.execute(kMigrations[static_cast<std::size_t>(v)]));
      if (v + 1 > kFirstWithAbout)
        TRY_VOID(db.execute(fmt::format("UPDATE about SET schema_version = {}", v + 1).c_str()));
      TRY_VOID(db.execute(fmt::format("PRAGMA application_id = {}", kApplicationId).c_str()));
      return db.execute(fmt::format("PRAGMA user_version = {}", v + 1).c_str());
    });
    if (!done) {
      Error error = done.error();
      error.message = fmt::format("the job database stays at version {}: {}", v, error.message);
      return fail(std::move(error));
    }
  }
  return {};
}

}  // namespace ponder::jobs
