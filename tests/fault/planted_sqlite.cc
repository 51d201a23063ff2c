// Plants one bug between ponderd and SQLite, so that a harness can be shown to find it: preload
// this library and name the bug in PONDER_PLANTED (unset or unknown: nothing is changed).
//
//   LD_PRELOAD=build/release/tests/libplanted_sqlite.so PONDER_PLANTED=late_commit ponderd ...
//
//   late_commit      COMMIT says that it is done before it is; the next BEGIN does it
//   two_commits      the end of a job in two transactions: the row, then its event
//   no_fence         an attempt that was taken away still writes (id, claim, instance unasked)
//   synchronous_off  nothing is ever synced
//   normal_accept    what must be FULL is NORMAL: accepted jobs, ends, cancels
//   no_checkpoint    the log is never written into the database
//   lost_key         the idempotency key is not stored
//   lost_cancel      the wish to cancel a running job is not stored
//   few_orphans      a start moves on no more than 100 rows of a dead daemon
//   always_death     every job that comes back counts an attempt
//   never_death      no job that comes back counts one
//   forgets_last_id  a start does not know the ids of the time before it
//   no_seal          the checksums of rows are not looked at
//   lost_order       a start takes up what waits in the reverse order
//   leaks            each start of a job leaves a file open and forgets memory
//   looks_beside     the database file is opened and closed beside SQLite, at each start of a job
//
// PONDER_STARTS names a file that gets a line of every job that is started, whatever is planted:
// its number, its lane, how many of its lane came before it and wait, how many asks wait, and the
// time by CLOCK_MONOTONIC_RAW in ms. Written in the transaction of the start, so in the order of
// starts.
//
// It stands in for the few entry points that jobs/store/sqlite.cc calls, and passes all else on.
#include <dlfcn.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <string_view>

namespace {

const std::string& planted() {
  static const std::string name = [] {
    const char* value = std::getenv("PONDER_PLANTED");
    return std::string(value ? value : "");
  }();
  return name;
}
bool is(const char* bug) {
  return planted() == bug;
}

/// The function that this library stands in front of.
template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

struct Change {
  const char* bug;
  const char* from;
  const char* to;
};
// Every parameter stays in use, so that what is bound to it is still taken.
constexpr Change kChanges[] = {
    {"no_fence", "AND state = 'running' AND claims = ?2 AND instance = ?3",
     "AND (?2 IS ?2) AND (?3 IS ?3)"},
    {"synchronous_off", "PRAGMA synchronous = FULL", "PRAGMA synchronous = OFF"},
    {"synchronous_off", "PRAGMA synchronous = NORMAL", "PRAGMA synchronous = OFF"},
    {"normal_accept", "PRAGMA synchronous = FULL", "PRAGMA synchronous = NORMAL"},
    {"no_checkpoint", "PRAGMA wal_autocheckpoint = 1000", "PRAGMA wal_autocheckpoint = 0"},
    {"lost_key", "VALUES (?1, ?2, 'queued', ?3, ?4, ?5, ",
     "VALUES (?1, ?2, 'queued', ?3, ?4, nullif(?5, ?5), "},
    {"lost_cancel", "SET cancel_requested = 1", "SET cancel_requested = cancel_requested"},
    {"no_seal", "seal IS ponder_crc32(", "0 <= ponder_crc32("},
    {"forgets_last_id", "SELECT max(id) FROM job", "SELECT ''"},
    {"few_orphans", "AND instance <> ?1 ORDER BY seq", "AND instance <> ?1 ORDER BY seq LIMIT 100"},
    {"always_death", "instance = NULL, deaths = deaths + ?4",
     "instance = NULL, deaths = deaths + max(?4, 1)"},
    {"never_death", "instance = NULL, deaths = deaths + ?4",
     "instance = NULL, deaths = deaths + min(?4, 0)"},
};

std::string changed(std::string sql) {
  for (const Change& change : kChanges) {
    if (!is(change.bug)) continue;
    if (const auto at = sql.find(change.from); at != sql.npos)
      sql.replace(at, std::strlen(change.from), change.to);
  }
  return sql;
}

std::mutex mutex;                      // SQLite is used by one thread; the harness's own take turns
std::set<sqlite3*> uncommitted;        // late_commit: said to be done
std::set<sqlite3_stmt*> ends_of_jobs;  // two_commits
std::set<sqlite3_stmt*> seals_of_jobs;
std::set<sqlite3*> ending;  // a row has ended, its checksum is yet to come

/// See PONDER_STARTS. `claim` has just made a job running and returned its number.
void note_start(sqlite3_stmt* claim) {
  static std::FILE* file = [] {
    const char* path = std::getenv("PONDER_STARTS");
    return path ? std::fopen(path, "a") : nullptr;
  }();
  if (!file) return;
  constexpr const char* kSeen =
      "SELECT seq, lane, (SELECT count(*) FROM job b INDEXED BY job_live WHERE b.state IN "
      "('queued', "
      "'running') AND b.state = 'queued' AND b.seq < job.seq AND b.lane = job.lane), (SELECT "
      "count(*) "
      "FROM job b INDEXED BY job_live WHERE b.state IN ('queued', 'running') AND b.state = "
      "'queued' AND "
      "b.lane = 'ask') FROM job WHERE seq = ?1";
  sqlite3_stmt* seen = nullptr;
  real<decltype(sqlite3_prepare_v3)>("sqlite3_prepare_v3")(sqlite3_db_handle(claim), kSeen, -1, 0,
                                                           &seen, nullptr);
  const auto step = real<decltype(sqlite3_step)>("sqlite3_step");
  const auto number = real<decltype(sqlite3_column_int64)>("sqlite3_column_int64");
  sqlite3_bind_int64(seen, 1, number(claim, 0));
  if (step(seen) == SQLITE_ROW) {
    timespec now{};
    ::clock_gettime(CLOCK_MONOTONIC_RAW, &now);
    std::fprintf(file, "%lld %s %lld %lld %lld\n", number(seen, 0), sqlite3_column_text(seen, 1),
                 number(seen, 2), number(seen, 3), now.tv_sec * 1000LL + now.tv_nsec / 1'000'000);
    std::fflush(file);
  }
  sqlite3_finalize(seen);
}

bool is_sql(sqlite3_stmt* statement, const char* part) {
  const char* sql = sqlite3_sql(statement);
  return sql && std::strstr(sql, part);
}

int exec(sqlite3* db, const char* sql) {
  return real<decltype(sqlite3_exec)>("sqlite3_exec")(db, sql, nullptr, nullptr, nullptr);
}

/// late_commit: what was put off is done now.
void commit_late(sqlite3* db) {
  {
    const std::lock_guard lock(mutex);
    if (uncommitted.erase(db) == 0) return;
  }
  exec(db, "COMMIT");
}
}  // namespace

extern "C" {

int sqlite3_exec(sqlite3* db, const char* sql, int (*row)(void*, int, char**, char**),
                 void* argument, char** message) {
  commit_late(db);
  if (is("late_commit") && std::strcmp(sql, "COMMIT") == 0) {
    const std::lock_guard lock(mutex);
    uncommitted.insert(db);
    return SQLITE_OK;
  }
  return real<decltype(sqlite3_exec)>("sqlite3_exec")(db, changed(sql).c_str(), row, argument,
                                                      message);
}

int sqlite3_prepare_v3(sqlite3* db, const char* sql, int bytes, unsigned flags,
                       sqlite3_stmt** statement, const char** tail) {
  const auto prepare = real<decltype(sqlite3_prepare_v3)>("sqlite3_prepare_v3");
  if (planted().empty() || tail) return prepare(db, sql, bytes, flags, statement, tail);
  const std::string given = bytes < 0 ? std::string(sql) : std::string(sql, ::strnlen(sql, bytes));
  const std::string text = changed(given);
  const int code = prepare(db, text.c_str(), -1, flags, statement, tail);
  if (code == SQLITE_OK && given.find("SET state = ?4, reason = ?5") != given.npos) {
    const std::lock_guard lock(mutex);
    ends_of_jobs.insert(*statement);
  }
  if (code == SQLITE_OK && given.starts_with("UPDATE job SET seal")) {
    const std::lock_guard lock(mutex);
    seals_of_jobs.insert(*statement);
  }
  return code;
}

int sqlite3_step(sqlite3_stmt* statement) {
  const int code = real<decltype(sqlite3_step)>("sqlite3_step")(statement);
  if (code == SQLITE_ROW && is_sql(statement, "SET state = 'running'")) note_start(statement);
  if (code == SQLITE_ROW && is("looks_beside") && is_sql(statement, "SET state = 'running'")) {
    const char* name = sqlite3_db_filename(sqlite3_db_handle(statement), "main");
    if (std::FILE* file = std::fopen(name, "r")) std::fclose(file);
  }
  if (code == SQLITE_ROW && is("leaks") && is_sql(statement, "SET state = 'running'")) {
    static_cast<char*>(std::malloc(100))[statement == nullptr] = 1;
    static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  }
  if (code != SQLITE_DONE || !is("two_commits")) return code;
  sqlite3* db = sqlite3_db_handle(statement);
  {
    const std::lock_guard lock(mutex);
    if (ends_of_jobs.count(statement) != 0) ending.insert(db);
    if (seals_of_jobs.count(statement) == 0 || ending.erase(db) == 0) return code;
  }
  exec(db, "COMMIT");
  exec(db, "BEGIN IMMEDIATE");
  return code;
}

sqlite3_int64 sqlite3_column_int64(sqlite3_stmt* statement, int column) {
  const auto value =
      real<decltype(sqlite3_column_int64)>("sqlite3_column_int64")(statement, column);
  const bool of_live = column == 0 && is("lost_order") && is_sql(statement, "INDEXED BY job_live");
  return of_live && !is_sql(statement, "instance <>") ? 1'000'000 - value : value;
}

int sqlite3_wal_checkpoint_v2(sqlite3* db, const char* name, int mode, int* frames, int* moved) {
  commit_late(db);
  if (is("no_checkpoint")) {
    if (frames) *frames = 0;
    if (moved) *moved = 0;
    return SQLITE_OK;
  }
  return real<decltype(sqlite3_wal_checkpoint_v2)>("sqlite3_wal_checkpoint_v2")(db, name, mode,
                                                                                frames, moved);
}

int sqlite3_close(sqlite3* db) {
  commit_late(db);
  return real<decltype(sqlite3_close)>("sqlite3_close")(db);
}
}
