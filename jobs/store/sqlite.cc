#include "jobs/store/sqlite.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>
#if defined(__linux__)
#include <sys/vfs.h>
#endif
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/base/unique_fd.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr const char* kFreeSpaceHint = "free some disk space; it is tried again every second";

/// `file` is the database, for the message; empty: unknown.
Error storage_error(int code, std::string_view file) {
  Error error{ErrorCode::storage, {}};
  error.details["sqlite"] = code;
  const std::string database =
      file.empty() ? "the job database" : fmt::format("the job database {}", file);
  switch (code & 0xff) {
    case SQLITE_FULL:
      error.message = "the disk is full";
      error.hint = kFreeSpaceHint;
      break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      error.message = fmt::format("{} is damaged", database);
      error.hint =
          "stop the daemon, move ponder.db, ponder.db-wal and ponder.db-shm aside together and "
          "start again; the jobs in them are then no longer known, nothing else is lost";
      break;
    case SQLITE_READONLY:
      error.message = fmt::format("{} cannot be written", database);
      error.hint = "make the state directory writable";
      break;
    case SQLITE_BUSY:
      error.message = fmt::format("another process holds {}", database);
      error.hint = "close whatever has ponder.db open";
      break;
    default:
      error.message = fmt::format("{} refused: {}", database, sqlite3_errstr(code));
      break;
  }
  return error;
}

/// The file behind a connection, as SQLite knows it.
std::string_view file_of(sqlite3* db) {
  const char* file = sqlite3_db_filename(db, "main");
  return file ? file : "";
}

/// Makes the file with mode 0600 whatever the umask, or checks the one that is there. Runs before
/// SQLite opens it: closing a descriptor of an open database would drop SQLite's locks.
Result<void> prepare_file(const fs::path& file) {
  UniqueFd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (fd) {
    if (::fchmod(fd.get(), 0600) != 0)
      return fail(ErrorCode::storage, fmt::format("cannot protect {}", file.string()));
    return {};
  }
  if (errno != EEXIST)
    return fail(ErrorCode::storage,
                fmt::format("cannot make {}: {}", file.string(), std::strerror(errno)));
  struct stat s {};
  if (::lstat(file.c_str(), &s) != 0 || !S_ISREG(s.st_mode))
    return fail(ErrorCode::storage, fmt::format("{} is not a plain file", file.string()),
                "move it aside; a link to the database is not followed");
  if (s.st_uid != ::geteuid())
    return fail(ErrorCode::storage, fmt::format("{} belongs to another user", file.string()));
  if ((s.st_mode & 077) != 0 && ::chmod(file.c_str(), 0600) != 0)
    return fail(ErrorCode::storage, fmt::format("{} is open to other users", file.string()),
                fmt::format("chmod 600 {}", file.string()));
  return {};
}

Result<void> refuse_unsafe_filesystem(const fs::path& directory) {
#if defined(__linux__)
  struct statfs s {};
  if (::statfs(directory.c_str(), &s) != 0)
    return fail(ErrorCode::storage,
                fmt::format("cannot look at {}: {}", directory.string(), std::strerror(errno)));
  const std::string_view name = unsafe_filesystem(static_cast<std::uint64_t>(s.f_type));
  if (!name.empty())
    return fail(
        ErrorCode::storage,
        fmt::format("{} is on {}, where a database's locks do not hold", directory.string(), name),
        "choose a --home on a local disk");
#else
  (void)directory;
#endif
  return {};
}

int stop_at_deadline(void* deadline) {
  return std::chrono::steady_clock::now() >
                 *static_cast<const std::chrono::steady_clock::time_point*>(deadline)
             ? 1
             : 0;
}
}  // namespace

std::string_view unsafe_filesystem(std::uint64_t f_type) {
  switch (f_type & 0xffffffffu) {
    case 0x6969:
      return "NFS";
    case 0xFF534D42:
      return "CIFS";
    case 0xFE534D42:
      return "SMB2";
    case 0x01021997:
      return "9p (a Windows drive under WSL)";
    case 0x65735546:
      return "FUSE";
    default:
      return "";
  }
}

Statement::Statement(Statement&& other) noexcept : stmt_(std::exchange(other.stmt_, nullptr)) {}
Statement& Statement::operator=(Statement&& other) noexcept {
  std::swap(stmt_, other.stmt_);
  return *this;
}
Statement::~Statement() {
  sqlite3_finalize(stmt_);
}

Cursor::Cursor(Statement& statement) : stmt_(statement.stmt_) {
  CHECK(stmt_ != nullptr);
}
Cursor::~Cursor() {
  sqlite3_reset(stmt_);
  sqlite3_clear_bindings(stmt_);
}
Cursor& Cursor::integer(int index, std::int64_t value) {
  bind_error_ |= sqlite3_bind_int64(stmt_, index, value);
  return *this;
}
Cursor& Cursor::text(int index, std::string_view value) {
  bind_error_ |= sqlite3_bind_text64(stmt_, index, value.data() ? value.data() : "", value.size(),
                                     SQLITE_STATIC, SQLITE_UTF8);
  return *this;
}
Cursor& Cursor::blob(int index, std::string_view value) {
  bind_error_ |= sqlite3_bind_blob64(stmt_, index, value.data() ? value.data() : "", value.size(),
                                     SQLITE_STATIC);
  return *this;
}
Cursor& Cursor::null(int index) {
  bind_error_ |= sqlite3_bind_null(stmt_, index);
  return *this;
}
Cursor& Cursor::text_or_null(int index, std::string_view value) {
  return value.empty() ? null(index) : text(index, value);
}

Result<bool> Cursor::step() {
  if (bind_error_ != SQLITE_OK) return fail(storage_error(bind_error_, {}));
  const int code = sqlite3_step(stmt_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  sqlite3* db = sqlite3_db_handle(stmt_);
  const int extended = sqlite3_extended_errcode(db);
  Error error = storage_error(extended, file_of(db));
  // What a trigger or CHECK says names the rule and no value.
  if ((extended & 0xff) == SQLITE_CONSTRAINT)
    error.message = fmt::format("the job database refused: {}", sqlite3_errmsg(db));
  return fail(std::move(error));
}
Result<void> Cursor::run() {
  TRY(const bool row, step());
  (void)row;
  return {};
}
std::int64_t Cursor::integer_at(int column) const {
  return sqlite3_column_int64(stmt_, column);
}
std::string Cursor::text_at(int column) const {
  const auto* bytes = static_cast<const char*>(sqlite3_column_blob(stmt_, column));
  const int size = sqlite3_column_bytes(stmt_, column);
  return bytes ? std::string(bytes, static_cast<std::size_t>(size)) : std::string();
}
bool Cursor::is_null(int column) const {
  return sqlite3_column_type(stmt_, column) == SQLITE_NULL;
}

Result<Database> Database::open(const fs::path& file) {
  std::error_code ec;
  // SQLite refuses a link anywhere in the path; only one in the last part is a trap.
  const fs::path directory = fs::canonical(file.parent_path(), ec);
  if (ec)
    return fail(ErrorCode::storage, fmt::format("the directory {} cannot be used: {}",
                                                file.parent_path().string(), ec.message()));
  const fs::path path = directory / file.filename();
  TRY_VOID(refuse_unsafe_filesystem(directory));
  TRY_VOID(prepare_file(path));
  Database database;
  const int code = sqlite3_open_v2(
      path.c_str(), &database.db_,
      SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
      nullptr);
  if (code != SQLITE_OK) return fail(storage_error(code, path.string()));
  TRY_VOID(database.configure());
  return database;
}

Result<void> Database::configure() {
  sqlite3_busy_timeout(db_, 5000);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(db_, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  for (const char* sql :
       {"PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON", "PRAGMA mmap_size = 0",
        "PRAGMA foreign_keys = ON", "PRAGMA auto_vacuum = INCREMENTAL",  // before any table
        "PRAGMA synchronous = FULL"}) {
    TRY_VOID(execute(sql));
  }
  TRY(Statement wal, prepare("PRAGMA journal_mode = WAL"));
  {
    Cursor cursor(wal);
    TRY(const bool row, cursor.step());
    if (!row || cursor.text_at(0) != "wal")
      return fail(ErrorCode::storage, "the file system cannot hold a write-ahead log",
                  "choose a --home on a local disk");
  }
  for (const char* sql :
       {"PRAGMA journal_size_limit = 16777216", "PRAGMA wal_autocheckpoint = 1000"}) {
    TRY_VOID(execute(sql));
  }
  return {};
}

Database::Database(Database&& other) noexcept
    : db_(std::exchange(other.db_, nullptr)),
      current_(other.current_),
      sync_failed_(other.sync_failed_) {}

Database::~Database() {
  if (!db_) return;
  const int code = sqlite3_close(db_);
  CHECK_MSG(code == SQLITE_OK, "a statement outlived its database");
}

Error Database::last_error() {
  const int code = sqlite3_extended_errcode(db_);
  if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) sync_failed_ = true;
  return storage_error(code, file_of(db_));
}

Result<void> Database::execute(const char* sql) {
  if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) return fail(last_error());
  return {};
}

Result<std::int64_t> Database::pragma_integer(const char* sql) {
  TRY(Statement statement, prepare(sql));
  Cursor cursor(statement);
  TRY(const bool row, cursor.step());
  return row ? cursor.integer_at(0) : 0;
}

Result<Statement> Database::prepare(std::string_view sql) {
  Statement statement;
  if (sqlite3_prepare_v3(db_, sql.data(), static_cast<int>(sql.size()), SQLITE_PREPARE_PERSISTENT,
                         &statement.stmt_, nullptr) != SQLITE_OK)
    return fail(last_error());
  return statement;
}

Result<void> Database::transaction(Durability durability,
                                   const std::function<Result<void>()>& work) {
  if (sync_failed_)
    return fail(ErrorCode::storage, "the disk refused to sync, so what it holds is unknown",
                "check the disk, then `ponder restart`");
  if (durability != current_) {
    TRY_VOID(execute(durability == Durability::full ? "PRAGMA synchronous = FULL"
                                                    : "PRAGMA synchronous = NORMAL"));
    current_ = durability;
  }
  TRY_VOID(execute("BEGIN IMMEDIATE"));
  Result<void> done = work();
  if (done) done = execute("COMMIT");
  if (!done && !sqlite3_get_autocommit(db_)) {
    // After some I/O errors SQLite has rolled back by itself and would refuse a second one.
    if (sqlite3_exec(db_, "ROLLBACK", nullptr, nullptr, nullptr) != SQLITE_OK)
      log_error("the job database could not roll back");
  }
  return done;
}

std::int64_t Database::changes() const {
  return sqlite3_changes64(db_);
}

Result<void> Database::quick_check(std::int64_t budget_ms) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(budget_ms);
  sqlite3_progress_handler(db_, 10'000, stop_at_deadline, &deadline);
  auto check = [this]() -> Result<void> {
    TRY(Statement statement, prepare("PRAGMA quick_check(1)"));
    Cursor cursor(statement);
    TRY(const bool row, cursor.step());
    if (row && cursor.text_at(0) != "ok") return fail(storage_error(SQLITE_CORRUPT, file_of(db_)));
    return {};
  };
  Result<void> result = check();
  sqlite3_progress_handler(db_, 0, nullptr, nullptr);
  if (!result && (result.error().details["sqlite"] & 0xff) == SQLITE_INTERRUPT) {
    log_warn("the job database is large; its check at start was cut short");
    return {};
  }
  return result;
}

void Database::checkpoint() {
  sqlite3_wal_checkpoint_v2(db_, nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr, nullptr);
}

}  // namespace ponder::jobs
