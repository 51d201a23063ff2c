#include "jobs/store/sqlite.h"

#include <fmt/core.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <chrono>
#include <mutex>
#include <set>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "jobs/store/database_file.h"
#include "jobs/store/seal.h"

namespace ponder::jobs {
namespace fs = std::filesystem;
namespace {

constexpr int kCheckpointPages = 1000;          // SQLite's own default
constexpr std::int64_t kPageBytes = 4096 + 24;  // with its header in the log
constexpr std::int64_t kLogWarnBytes = 32 << 20;
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
      error.hint = "`ponder restart` puts it aside and saves what can be read of it";
      break;
    case SQLITE_READONLY:
      error.message = fmt::format("{} cannot be written", database);
      error.hint = "make the state directory writable";
      break;
    case SQLITE_BUSY:
      error.code = ErrorCode::loading;  // nothing is broken: it is there again in a moment
      error.message = fmt::format("another process holds {}", database);
      error.hint = "close whatever has ponder.db open, or try again in a moment";
      break;
    default:
      error.message = fmt::format("{} refused: {}", database, sqlite3_errstr(code));
      error.hint =
          "check the disk and the memory of this machine; `ponder doctor` looks at the database";
      break;
  }
  return error;
}

/// The file behind a connection, as SQLite knows it.
std::string_view file_of(sqlite3* db) {
  const char* file = sqlite3_db_filename(db, "main");
  return file ? file : "";
}

/// Which databases this process has open. A second connection to the same one is a bug: only one
/// may write, and two copies of SQLite's locks in one process do not see each other.
using FileId = std::pair<dev_t, ino_t>;
std::mutex open_files_mutex;
std::set<FileId> open_files;

int stop_at_deadline(void* deadline) {
  return std::chrono::steady_clock::now() >
                 *static_cast<const std::chrono::steady_clock::time_point*>(deadline)
             ? 1
             : 0;
}
}  // namespace

/// What a connection's callbacks reach; it stays where it is when the Database moves.
struct Database::State {
  sqlite3* db = nullptr;
  FileId id{};
  Durability current = Durability::full;
  bool writes = true;
  bool sync_failed = false;
  bool warned_of_log = false;
  std::int64_t log_pages = 0;
  int patience_ms = 0;

  ~State() {
    // A log whose sync was refused must not be taken for written.
    if (db && (sync_failed || !writes))
      sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    CHECK_MSG(sqlite3_close(db) == SQLITE_OK, "a statement outlived its database");
    const std::lock_guard lock(open_files_mutex);
    open_files.erase(id);
  }
  void note(int code) {
    if (code == SQLITE_IOERR_FSYNC || code == SQLITE_IOERR_DIR_FSYNC) sync_failed = true;
  }
  /// The log into the database file; `mode` is SQLite's.
  void checkpoint(int mode) {
    if (sync_failed || !writes) return;
    int pages = 0;
    int done = 0;
    sqlite3_busy_timeout(db, 0);  // who reads now is not waited for: there is a next time
    const int code = sqlite3_wal_checkpoint_v2(db, nullptr, mode, &pages, &done);
    sqlite3_busy_timeout(db, patience_ms);
    note(code);
    // All of it is in the database: the next commit begins the log anew.
    if (code == SQLITE_OK) log_pages = pages == done ? 0 : pages;
    if (code != SQLITE_OK && (code & 0xff) != SQLITE_BUSY)
      log_warn(fmt::format("the log of the job database could not be written into it: {}",
                           sqlite3_errstr(code)));
  }
  static int committed(void* self, sqlite3*, const char*, int pages);
};

/// In place of SQLite's automatic checkpoint, which drops its errors: a sync of the database file
/// that was refused would be tried again, succeed, and the log that has the pages be thrown away.
int Database::State::committed(void* self, sqlite3*, const char*, int pages) {
  auto& state = *static_cast<State*>(self);
  state.log_pages = pages;
  if (pages < kCheckpointPages) return SQLITE_OK;
  state.checkpoint(SQLITE_CHECKPOINT_PASSIVE);
  const std::int64_t bytes = state.log_pages * kPageBytes;
  if (bytes >= kLogWarnBytes && !state.warned_of_log)
    log_warn(fmt::format(
        "the log of the job database has grown to {} MiB: something else has ponder.db open and "
        "reads it for long",
        bytes >> 20));
  state.warned_of_log = bytes >= kLogWarnBytes;
  return SQLITE_OK;
}

namespace {
/// The primary result code that an error carries, or SQLITE_OK.
int primary_code(const Error& error) {
  const auto code = error.details.find("sqlite");
  return code == error.details.end() ? SQLITE_OK : static_cast<int>(code->second & 0xff);
}
}  // namespace

bool is_damage(const Error& error) {
  const int code = primary_code(error);
  return error.details.count("damaged") != 0 || code == SQLITE_CORRUPT || code == SQLITE_NOTADB;
}
bool is_constraint(const Error& error) {
  return primary_code(error) == SQLITE_CONSTRAINT;
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

Cursor& Cursor::copy(int index, const Cursor& from, int column) {
  bind_error_ |= sqlite3_bind_value(stmt_, index, sqlite3_column_value(from.stmt_, column));
  return *this;
}
int Cursor::columns() const {
  return sqlite3_column_count(stmt_);
}
std::string Cursor::name_of(int column) const {
  const char* name = sqlite3_column_name(stmt_, column);
  return name ? name : "";
}

Database::Database(std::unique_ptr<State> state) : state_(std::move(state)) {}
Database::Database(Database&& other) noexcept = default;
Database& Database::operator=(Database&& other) noexcept = default;
Database::~Database() = default;

Result<Database> Database::open(const fs::path& file, Access access) {
  TRY(const fs::path path, usable_path(file));
  if (access != Access::read_only) TRY_VOID(prepare_file(path));
  struct stat s {};
  if (::stat(path.c_str(), &s) != 0)
    return fail(ErrorCode::storage, fmt::format("there is no {}", path.string()),
                "start the daemon once: it makes one");
  auto state = std::make_unique<State>();
  {
    const std::lock_guard lock(open_files_mutex);
    if (!open_files.insert({s.st_dev, s.st_ino}).second)
      return fail(ErrorCode::storage,
                  fmt::format("this process has {} open already", path.string()), "close it first");
  }
  state->id = {s.st_dev, s.st_ino};
  state->writes = access != Access::read_only;
  const int code =
      sqlite3_open_v2(path.c_str(), &state->db,
                      (state->writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) |
                          SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE,
                      nullptr);
  Database database(std::move(state));
  if (code != SQLITE_OK) return fail(storage_error(code, path.string()));
  TRY_VOID(database.configure(access));
  return database;
}

Result<Database> Database::in_memory() {
  auto state = std::make_unique<State>();
  if (sqlite3_open(":memory:", &state->db) != SQLITE_OK)
    return fail(ErrorCode::out_of_memory, "no memory for a database", "end other programs");
  add_crc_function(state->db);
  return Database(std::move(state));
}

Result<void> Database::configure(Access access) {
  sqlite3* db = state_->db;
  add_crc_function(db);
  if (access == Access::salvage) return execute("PRAGMA writable_schema = ON");
  set_patience(5000);  // others have a moment to finish; later nobody else writes
  sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(db, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  for (const char* sql : {"PRAGMA trusted_schema = OFF", "PRAGMA cell_size_check = ON",
                          "PRAGMA mmap_size = 0", "PRAGMA foreign_keys = ON"}) {
    TRY_VOID(execute(sql));
  }
  if (!state_->writes) return {};
  // Before any table; of an existing database it would write the header each time.
  TRY(const std::int64_t pages, pragma_integer("PRAGMA page_count"));
  if (pages == 0) TRY_VOID(execute("PRAGMA auto_vacuum = INCREMENTAL"));
  TRY_VOID(execute("PRAGMA synchronous = FULL"));
  TRY(Statement wal, prepare("PRAGMA journal_mode = WAL"));
  {
    Cursor cursor(wal);
    TRY(const bool row, cursor.step());
    if (!row || cursor.text_at(0) != "wal")
      return fail(ErrorCode::storage, "the file system cannot hold a write-ahead log",
                  "choose a --home on a local disk");
  }
  TRY_VOID(execute("PRAGMA journal_size_limit = 16777216"));
  sqlite3_wal_hook(db, State::committed, state_.get());
  return {};
}

void Database::set_patience(int ms) {
  state_->patience_ms = ms;
  sqlite3_busy_timeout(state_->db, ms);
}

Error Database::last_error() {
  const int code = sqlite3_extended_errcode(state_->db);
  state_->note(code);
  return storage_error(code, file_of(state_->db));
}

Result<void> Database::execute(const char* sql) {
  if (sqlite3_exec(state_->db, sql, nullptr, nullptr, nullptr) != SQLITE_OK)
    return fail(last_error());
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
  if (sqlite3_prepare_v3(state_->db, sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement.stmt_, nullptr) != SQLITE_OK)
    return fail(last_error());
  return statement;
}

Result<void> Database::transaction(Durability durability,
                                   const std::function<Result<void>()>& work) {
  if (state_->sync_failed)
    return fail(ErrorCode::storage, "the disk refused to sync, so what it holds is unknown",
                "check the disk, then `ponder restart`");
  if (durability != state_->current) {
    TRY_VOID(execute(durability == Durability::full ? "PRAGMA synchronous = FULL"
                                                    : "PRAGMA synchronous = NORMAL"));
    state_->current = durability;
  }
  TRY_VOID(execute("BEGIN IMMEDIATE"));
  Result<void> done = work();
  if (done) done = execute("COMMIT");
  if (!done && !sqlite3_get_autocommit(state_->db)) {
    // After some I/O errors SQLite has rolled back by itself and would refuse a second one.
    if (sqlite3_exec(state_->db, "ROLLBACK", nullptr, nullptr, nullptr) != SQLITE_OK)
      log_error("the job database could not roll back");
  }
  return done;
}

std::int64_t Database::changes() const {
  return sqlite3_changes64(state_->db);
}

Result<bool> Database::check(std::int64_t budget_ms, std::vector<std::string>* findings) {
  auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(budget_ms);
  sqlite3_progress_handler(state_->db, 10'000, stop_at_deadline, &deadline);
  auto run = [&](const char* sql) -> Result<void> {
    TRY(Statement statement, prepare(sql));
    Cursor cursor(statement);
    for (;;) {
      TRY(const bool row, cursor.step());
      if (!row || cursor.text_at(0) == "ok") return {};
      if (!findings) return fail(storage_error(SQLITE_CORRUPT, file_of(state_->db)));
      findings->push_back(cursor.text_at(0));
    }
  };
  // The quick one leaves the entries of indexes alone; those of `job` are few and decide what runs.
  Result<void> done = run("PRAGMA integrity_check('job')");
  if (done) done = run(findings ? "PRAGMA integrity_check(20)" : "PRAGMA quick_check(1)");
  sqlite3_progress_handler(state_->db, 0, nullptr, nullptr);
  if (done) return true;
  if (primary_code(done.error()) == SQLITE_INTERRUPT) return false;
  return fail(done.error());
}

Error Database::damage(std::string_view what) const {
  Error error = storage_error(SQLITE_CORRUPT, file_of(state_->db));
  error.message += fmt::format(": {}", what);
  return error;
}

void Database::checkpoint(bool idle) {
  state_->checkpoint(idle ? SQLITE_CHECKPOINT_TRUNCATE : SQLITE_CHECKPOINT_PASSIVE);
}

std::int64_t Database::log_bytes() const {
  return state_->log_pages * kPageBytes;
}

bool Database::sync_failed() const {
  return state_->sync_failed;
}

}  // namespace ponder::jobs
