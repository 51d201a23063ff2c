#pragma once
// SQLite behind Result: one connection, its prepared statements, its transactions. Owned by one
// thread at a time; sqlite3.h stays in the .cc. Errors are `storage` (`loading` where another
// process holds the database: it passes); details["sqlite"] is the extended result code. Messages
// never hold SQL or values. The only place that opens a database (the tree's check says so), and a
// process opens each once.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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
  Cursor& copy(int index, const Cursor& from, int column);  ///< whatever it is, with its type

  /// True: there is a row to read.
  Result<bool> step();
  /// Steps a statement that gives no rows.
  Result<void> run();

  std::int64_t integer_at(int column) const;
  std::string text_at(int column) const;  ///< text or blob; "" for NULL
  bool is_null(int column) const;
  int columns() const;
  std::string name_of(int column) const;

 private:
  sqlite3_stmt* stmt_;
  int bind_error_ = 0;
};

/// Whether the database itself does not hold together (not the disk, not a caller).
bool is_damage(const Error& error);
/// Whether a rule of the schema refused it.
bool is_constraint(const Error& error);

/// `salvage`: a copy of a damaged one, whose schema may be wrong and be written to.
enum class Access { read_write, read_only, salvage };

class Database {
 public:
  /// Opens or creates `file` (0600, no symbolic link, on a local file system) in WAL mode. The
  /// directory must exist. Refuses with a sentence what cannot hold a queue safely, and a file that
  /// this process has open already. Read-only: nothing is written, not even at the end.
  static Result<Database> open(const std::filesystem::path& file,
                               Access access = Access::read_write);
  /// An empty one that nobody else sees.
  static Result<Database> in_memory();
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;
  ~Database();

  Result<void> execute(const char* sql);
  Result<std::int64_t> pragma_integer(const char* sql);
  Result<Statement> prepare(std::string_view sql);

  /// BEGIN IMMEDIATE, `work`, COMMIT at this durability. Whatever fails, nothing is kept (but for
  /// a commit whose sync failed: see sync_failed()).
  Result<void> transaction(Durability durability, const std::function<Result<void>()>& work);

  /// Rows the last statement changed.
  std::int64_t changes() const;

  /// How long a statement waits for another process that holds the database. 5 s at first.
  void set_patience(int ms);

  /// A sync to the disk was refused, at a commit or when the log was written into the database:
  /// what lies there is unknown, and asking again would not tell. From then on every transaction
  /// fails and the log is left alone until the process starts anew and writes all of it again.
  bool sync_failed() const;

  /// SQLite's quick check and the full one of the table `job`, given up after `budget_ms`: then
  /// false. Damage is an error, unless `findings` is there to take what was found of a full check
  /// of everything.
  Result<bool> check(std::int64_t budget_ms, std::vector<std::string>* findings = nullptr);
  /// The error of a database that is damaged in the way that is said.
  Error damage(std::string_view what) const;

  /// Writes what it can of the log into the database file; `idle`: empties it as well. It happens
  /// by itself after every 1,000 pages. A log that passes 32 MiB is told once.
  void checkpoint(bool idle);
  /// Of the log that is not in the database file yet, as of the last commit.
  std::int64_t log_bytes() const;

 private:
  struct State;
  explicit Database(std::unique_ptr<State> state);
  Error last_error();
  Result<void> configure(Access access);

  std::unique_ptr<State> state_;
};

}  // namespace ponder::jobs
