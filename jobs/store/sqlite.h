#pragma once
// SQLite behind Result: one connection, its prepared statements, its transactions. Owned by one
// thread at a time; sqlite3.h stays in the .cc. Errors are `storage`; details["sqlite"] is the
// extended result code. Messages never hold SQL or values.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "engine/base/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace ponder::jobs {

/// How far a commit reaches: `full` is on the disk when it returns; `normal` survives the death of
/// the process but may be lost with the machine's power, as a whole and from the end.
enum class Durability { normal, full };

class Database;

/// A prepared statement, kept for the life of its connection.
class Statement {
 public:
  Statement() = default;
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&& other) noexcept;
  ~Statement();

 private:
  friend class Database;
  friend class Cursor;
  sqlite3_stmt* stmt_ = nullptr;
};

/// One run of a statement: bind, step, read. Frees the statement for its next run when it goes.
class Cursor {
 public:
  explicit Cursor(Statement& statement);
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;
  ~Cursor();

  Cursor& integer(int index, std::int64_t value);
  Cursor& text(int index, std::string_view value);  ///< `value` must outlive the cursor
  Cursor& blob(int index, std::string_view value);  ///< the same
  Cursor& null(int index);
  Cursor& text_or_null(int index, std::string_view value);  ///< empty: NULL

  /// True: there is a row to read.
  Result<bool> step();
  /// Steps a statement that gives no rows.
  Result<void> run();

  std::int64_t integer_at(int column) const;
  std::string text_at(int column) const;  ///< text or blob; "" for NULL
  bool is_null(int column) const;

 private:
  sqlite3_stmt* stmt_;
  int bind_error_ = 0;
};

class Database {
 public:
  /// Opens or creates `file` (0600, no symbolic link, on a local file system) in WAL mode. The
  /// directory must exist. Refuses with a sentence what cannot hold a queue safely.
  static Result<Database> open(const std::filesystem::path& file);
  Database(Database&& other) noexcept;
  Database& operator=(Database&&) = delete;
  ~Database();

  Result<void> execute(const char* sql);
  Result<std::int64_t> pragma_integer(const char* sql);
  Result<Statement> prepare(std::string_view sql);

  /// BEGIN IMMEDIATE, `work`, COMMIT at this durability. Whatever fails, nothing is kept (but for
  /// a commit whose sync failed: see sync_failed()).
  Result<void> transaction(Durability durability, const std::function<Result<void>()>& work);

  /// Rows the last statement changed.
  std::int64_t changes() const;

  /// A sync to the disk was refused: what lies there is unknown, and asking again would not tell.
  /// From then on every transaction fails until the process starts anew.
  bool sync_failed() const { return sync_failed_; }

  /// PRAGMA quick_check, given up silently after `budget_ms`. storage if damage was found.
  Result<void> quick_check(std::int64_t budget_ms);
  /// Empties the log into the database file. For idle times and the end.
  void checkpoint();

 private:
  Database() = default;
  Error last_error();
  Result<void> configure();

  sqlite3* db_ = nullptr;
  Durability current_ = Durability::full;
  bool sync_failed_ = false;
};

/// The name of a file system on which locks or shared memory do not hold (statfs f_type), or "".
std::string_view unsafe_filesystem(std::uint64_t f_type);

}  // namespace ponder::jobs
