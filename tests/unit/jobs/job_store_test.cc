#include "jobs/store/job_store.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <fstream>
#include <random>
#include <set>

#include "engine/base/filesystem_kind.h"
#include "jobs/store/seal.h"
#include "jobs/store/sqlite.h"
#include "jobs/submission.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {

namespace fs = std::filesystem;

class JobStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { open(); }
  void open() {
    store.reset();
    auto opened = JobStore::open(file);
    ASSERT_TRUE(opened) << opened.error().message;
    store = std::move(*opened);
  }
  JobRow insert(Lane lane = Lane::batch, std::string key = {}) {
    JobRow row;
    row.id = new_job_id(1000);
    row.lane = lane;
    row.workspace = "/w";
    row.idempotency_key = std::move(key);
    row.body_sha256 = sha256_of(row.id);
    row.effort_requested = "xhigh";
    row.created_ms = 1000;
    EXPECT_TRUE(store->insert(row, "{}"));
    return row;
  }
  JobRow claim(const JobRow& row, const char* instance = "me") {
    StateChange change;
    auto claimed = store->claim(row.id, instance, 2000, change);
    EXPECT_TRUE(claimed && *claimed);
    return **claimed;
  }
  static Fence fence(const JobRow& row) { return {row.seq, row.id, row.claims, row.instance}; }
  static Progress chunks(std::vector<Chunk> list, std::int64_t next) {
    Progress p;
    p.chunks = std::move(list);
    p.next_chunk = next;
    p.attempt = 1;
    return p;
  }
  /// A completed job with the answer "hello world" in two chunks.
  JobRow completed() {
    const JobRow row = claim(insert());
    JobText text;
    text.append(Channel::answer, "hello world");
    EXPECT_TRUE(store->append(fence(row), chunks({{Channel::answer, "hello ", {1, 2}}}, 0)));
    Leave leave;
    leave.state = State::completed;
    leave.at_ms = 3000;
    StateChange change;
    auto left =
        store->leave(fence(row), chunks({{Channel::answer, "world", {3}}}, 1), text, leave, change);
    EXPECT_TRUE(left && *left);
    return **store->find(row.id);
  }

  TempDir dir;
  fs::path file = dir / "ponder.db";
  std::unique_ptr<JobStore> store;
};

TEST_F(JobStoreTest, AJobGoesThroughItsLifeAndComesBackWhole) {
  const JobRow row = completed();
  EXPECT_EQ(row.state, State::completed);
  EXPECT_EQ(row.attempt, 1);
  EXPECT_EQ(row.chunk_count, 2);
  auto text = store->text(row);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->text.of(Channel::answer), "hello world");
  EXPECT_EQ(text->answer_tokens, 3);
  const auto changes = *store->changes(row.seq);
  ASSERT_EQ(changes.size(), 3u);
  EXPECT_EQ(changes[0].position, 1);
  EXPECT_EQ(changes[2].position, 3 + 11);
}

TEST_F(JobStoreTest, AStaleAttemptCannotWrite) {
  const JobRow first = claim(insert(), "old");
  Leave back;
  StateChange change;
  ASSERT_TRUE(*store->leave(fence(first), chunks({}, 0), {}, back, change));
  const JobRow second = claim(first, "new");
  EXPECT_EQ(second.claims, 2);
  EXPECT_FALSE(*store->append(fence(first), chunks({{Channel::answer, "late", {}}}, 0)));
  Leave end;
  end.state = State::completed;
  EXPECT_FALSE(
      *store->leave(fence(first), chunks({{Channel::answer, "late", {}}}, 0), {}, end, change));
  Fence wrong_instance = fence(second);
  wrong_instance.instance = "old";
  EXPECT_FALSE(*store->leave(wrong_instance, chunks({}, 0), {}, end, change));
  EXPECT_EQ((*store->find(first.id))->state, State::running);
  EXPECT_EQ(store->load_undamaged(first.seq)->text.size(), 0);
}

TEST_F(JobStoreTest, OnlyOneClaimTakesAJob) {
  const JobRow row = insert();
  claim(row);
  StateChange change;
  EXPECT_FALSE(*store->claim(row.id, "other", 1, change));
}

/// The rule that the database gives for a raw statement.
TEST_F(JobStoreTest, TheDatabaseItselfRefusesIllegalMoves) {
  const char* states[] = {"queued", "running",   "completed",   "incomplete",
                          "failed", "cancelled", "interrupted", "expired"};
  const auto set = [](const std::string& to) {
    std::string sql = "UPDATE job SET state='" + to + "', reason='" +
                      (to == "incomplete" ? "stalled"
                       : to == "failed"   ? "poison"
                                          : "") +
                      "'";
    sql += to == "running" ? ", instance='i'" : ", instance=NULL";
    if (to == "failed") sql += ", error_code='x'";
    if (to == "queued" || to == "running")
      sql += ", ended_ms=NULL, chunk_count=NULL, text_bytes=NULL, text_sha256=NULL";
    else
      sql +=
          ", ended_ms=coalesce(ended_ms,1), chunk_count=0, text_bytes=0, "
          "text_sha256=coalesce(text_sha256,x'00')";
    if (to == "expired") sql += ", summary='was', error_code=''";
    return sql;
  };
  for (const char* from : states) {
    for (const char* to : states) {
      if (std::string(from) == to) continue;
      const JobRow row = insert();
      const std::string where = " WHERE seq=" + std::to_string(row.seq);
      // The shortest legal way to `from`.
      std::vector<std::string> way;
      if (std::string(from) != "queued") way.push_back(set("running"));
      if (std::string(from) == "expired") way.push_back(set("completed"));
      if (is_terminal(*state_from(from))) way.push_back(set(from));
      for (const std::string& step : way)
        ASSERT_EQ(raw_sql(file, step + where), "") << from;
      std::string sql = set(to) + where;
      if (std::string(to) == "expired" && std::string(from) != "queued" &&
          std::string(from) != "running")  // keeps the reason and the counts
        sql = "UPDATE job SET state='expired', summary='was', error_code=''" + where;
      const std::string answer = raw_sql(file, sql);
      EXPECT_EQ(answer.empty(), is_legal(*state_from(from), *state_from(to)))
          << from << " -> " << to << ": " << answer;
    }
  }
}

TEST_F(JobStoreTest, ATerminalRowNeverChangesButForPinReadAndExpiry) {
  const JobRow row = completed();
  const std::string where = " WHERE id='" + row.id + "'";
  for (const char* change : {"answer_chars=1",
                             "ended_ms=1",
                             "note='x'",
                             "facts='{\"a\":1}'",
                             "label='x'",
                             "attempt=9",
                             "run_ms=9",
                             "text_sha256=x'00'",
                             "told=1",
                             "summary='x'",
                             "error_message='x'",
                             "idempotency_key='x'",
                             "body_sha256=zeroblob(32)",
                             "created_ms=1",
                             "instance='i'",
                             "deaths=3",
                             "text_bytes=1",
                             "chunk_count=1",
                             "reason='stalled'",
                             "state='queued'",
                             "workspace='x'",
                             "parent_id='x'",
                             "started_ms=1",
                             "reasoning_chars=5",
                             "lane='ask'",
                             "seq=99",
                             "claims=9",
                             "deadline_ms=1",
                             "effort_requested='low'",
                             "cancel_requested=1",
                             "read_ms=1, note='x'"})
    EXPECT_NE(raw_sql(file, std::string("UPDATE job SET ") + change + where), "") << change;
  EXPECT_EQ(raw_sql(file, "UPDATE job SET pinned=1, read_ms=5" + where), "");
  EXPECT_NE(raw_sql(file, "INSERT INTO chunk VALUES(" + std::to_string(row.seq) +
                              ",9,1,1,x'41',0,x'',0)"),
            "");
  EXPECT_NE(raw_sql(file, "UPDATE chunk SET text=x'41'"), "");
  EXPECT_NE(raw_sql(file, "DELETE FROM chunk"), "");
  EXPECT_NE(raw_sql(file, "UPDATE state_change SET text_bytes=0"), "");
  EXPECT_NE(raw_sql(file,
                    "INSERT INTO job (id,lane,state,body_sha256,effort_requested,created_ms,"
                    "ended_ms,chunk_count,text_bytes,text_sha256) VALUES('" +
                        new_job_id(1) + "','ask','completed',zeroblob(32),'low',1,1,0,0,x'00')"),
            "");
  const JobRow live = insert();
  EXPECT_NE(raw_sql(file, "DELETE FROM job WHERE id='" + live.id + "'"), "");
}

TEST_F(JobStoreTest, EveryFlippedBitInAChunkIsNoticed) {
  const JobRow row = completed();
  ASSERT_EQ(raw_sql(file, "DROP TRIGGER chunk_never_changes; DROP TRIGGER chunk_stays"), "");
  const std::string where = " WHERE seq=0";
  const std::string restore =
      "UPDATE chunk SET text=CAST('hello ' AS BLOB), tokens="
      "x'0100000002000000', channel=1, attempt=1, token_count=2" +
      where;
  for (int byte = 0; byte < 6; ++byte) {
    std::string text = "hello ";
    text[static_cast<std::size_t>(byte)] ^= 1;
    ASSERT_EQ(raw_sql(file, "UPDATE chunk SET text=CAST('" + text + "' AS BLOB)" + where), "");
    auto read = store->text(row);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, ErrorCode::storage);
    EXPECT_EQ(read.error().job_id, row.id);
  }
  ASSERT_EQ(raw_sql(file, restore), "");
  ASSERT_TRUE(store->text(row));
  for (const char* change :
       {"channel=0", "attempt=2", "token_count=3", "tokens=x'0100000003000000'", "crc32=crc32+1"}) {
    ASSERT_EQ(raw_sql(file, std::string("UPDATE chunk SET ") + change + where), "");
    EXPECT_FALSE(store->text(row)) << change;
    ASSERT_EQ(raw_sql(file, restore), "");
    if (std::string(change) != "crc32=crc32+1") {
      ASSERT_TRUE(store->text(row)) << change;
    }
  }
}

TEST_F(JobStoreTest, AMissingChunkIsNoticed) {
  const JobRow row = completed();
  ASSERT_EQ(raw_sql(file, "DROP TRIGGER chunk_stays; DELETE FROM chunk WHERE seq=1"), "");
  EXPECT_FALSE(store->text(row));
}

TEST_F(JobStoreTest, AWholeButForeignTextIsNoticedByItsHash) {
  JobRow row = completed();
  // Chunks that are each right but make another text than the one that ended.
  row.text_sha256 = std::string(32, '\0');
  EXPECT_FALSE(store->text(row));
}

TEST_F(JobStoreTest, EveryHotQueryUsesAnIndex) {
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &db), SQLITE_OK);
  add_crc_function(db);
  int explained = 0;
  for (const auto& [name, sql] : JobStore::statements()) {
    if (name == "probe" || name == "vacuum" || name.starts_with("insert")) continue;
    std::string plan;
    const std::string explain = "EXPLAIN QUERY PLAN " + std::string(sql);
    char* message = nullptr;
    ASSERT_EQ(sqlite3_exec(
                  db, explain.c_str(),
                  [](void* to, int, char** values, char**) {
                    *static_cast<std::string*>(to) += std::string(values[3]) + "; ";
                    return 0;
                  },
                  &plan, &message),
              SQLITE_OK)
        << name << ": " << message;
    EXPECT_EQ(plan.find("SCAN job;"), std::string::npos) << name << ": " << plan;
    EXPECT_EQ(plan.find("SCAN chunk"), std::string::npos) << name << ": " << plan;
    EXPECT_EQ(plan.find("SCAN state_change"), std::string::npos) << name << ": " << plan;
    EXPECT_EQ(plan.find("TEMP B-TREE"), std::string::npos) << name << ": " << plan;
    ++explained;
  }
  sqlite3_close(db);
  EXPECT_GT(explained, 25);
}

// A reason that only the program knows would make an end that no disk ever takes.
TEST_F(JobStoreTest, TheSchemaKnowsEveryReasonInItsState) {
  ASSERT_EQ(raw_sql(file, "DROP TRIGGER job_begins_queued"), "");
  int taken = 0;
  for (int s = 0; s <= static_cast<int>(State::expired); ++s)
    for (int r = 0; r < static_cast<int>(Reason::count_); ++r) {
      const auto state = static_cast<State>(s);
      const auto reason = static_cast<Reason>(r);
      const bool over = is_terminal(state);
      const std::string said = raw_sql(
          file,
          fmt::format("INSERT INTO job (id, lane, body_sha256, effort_requested, created_ms, "
                      "error_code, summary, instance, ended_ms, chunk_count, text_bytes, "
                      "text_sha256, state, reason) VALUES ('{}', 'batch', zeroblob(32), 'low', 1, "
                      "'x', 'x', {}, {}, '{}', '{}')",
                      new_job_id(1000), state == State::running ? "'me'" : "NULL",
                      over ? "1, 0, 0, zeroblob(32)" : "NULL, NULL, NULL, NULL", to_string(state),
                      to_string(reason)));
      EXPECT_EQ(said.empty(), is_legal(state, reason))
          << to_string(state) << " " << to_string(reason) << ": " << said;
      if (said.empty()) {
        ++taken;
      } else {
        EXPECT_NE(said.find("CHECK constraint failed: CASE state"), std::string::npos) << said;
      }
    }
  EXPECT_EQ(taken, 5 + 7 + 6 + static_cast<int>(Reason::count_));
}

TEST_F(JobStoreTest, OrphansOfADeadInstanceAreAllMovedOnByTheTable) {
  const JobRow batch = claim(insert(Lane::batch), "dead");
  const JobRow ask = claim(insert(Lane::ask), "dead");
  const JobRow told = claim(insert(Lane::ask), "dead");
  const JobRow wished = claim(insert(Lane::batch), "dead");
  ASSERT_TRUE(store->mark_told(told.seq));
  ASSERT_TRUE(store->request_cancel(wished.seq));
  ASSERT_TRUE(store->append(fence(ask), chunks({{Channel::answer, "part", {1}}}, 0)));
  for (int i = 0; i < 200; ++i)
    claim(insert(), "dead");  // more than any batch size
  const auto recovered = store->recover("alive", 9000);
  ASSERT_TRUE(recovered);
  EXPECT_EQ(recovered->moved, 204);
  EXPECT_EQ(recovered->ended, (std::vector<std::pair<std::string, State>>{
                                  {ask.id, State::interrupted}, {wished.id, State::cancelled}}));
  EXPECT_EQ((*store->find(batch.id))->state, State::queued);
  EXPECT_EQ((*store->find(batch.id))->deaths, 0);
  EXPECT_EQ((*store->find(told.id))->state, State::queued);
  EXPECT_EQ((*store->find(wished.id))->state, State::cancelled);
  const JobRow interrupted = **store->find(ask.id);
  EXPECT_EQ(interrupted.state, State::interrupted);
  EXPECT_EQ(store->text(interrupted)->text.of(Channel::answer), "part");
  EXPECT_EQ(store->recover("alive", 9000)->moved, 0);
  EXPECT_EQ(raw_value(file, "SELECT count(*) FROM job WHERE state='running'"), "0");
}

TEST_F(JobStoreTest, DamagedTextOfAnOrphanIsCutToWhatHolds) {
  const JobRow row = claim(insert(Lane::ask), "dead");
  ASSERT_TRUE(store->append(fence(row), chunks({{Channel::answer, "good", {1}}}, 0)));
  ASSERT_TRUE(store->append(fence(row), chunks({{Channel::answer, "bad", {2}}}, 1)));
  ASSERT_EQ(
      raw_sql(file, "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text=x'42' WHERE seq=1"),
      "");
  ASSERT_TRUE(store->recover("alive", 9000));
  const JobRow after = **store->find(row.id);
  auto text = store->text(after);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(text->text.of(Channel::answer), "good");
  EXPECT_NE(after.note.find("damaged"), std::string::npos);
}

TEST_F(JobStoreTest, ExpiryKeepsOneLineAndTheKey) {
  JobRow row = insert(Lane::batch, "key");
  StateChange change;
  Leave leave;
  leave.state = State::cancelled;
  leave.at_ms = 5;
  ASSERT_TRUE(*store->end_queued(row, leave, change));
  ASSERT_TRUE(store->expire({{row.seq, "was cancelled"}}));
  const JobRow after = **store->find_key("key");
  EXPECT_EQ(after.state, State::expired);
  EXPECT_EQ(after.summary, "was cancelled");
  const auto request = store->request(row.seq);
  ASSERT_FALSE(request);
  EXPECT_FALSE(request.error().hint.empty()) << "what mends it";
  EXPECT_EQ(*store->drop_tombstones(1, 10), 0);
  EXPECT_EQ(*store->drop_tombstones(0, 10), 1);
  EXPECT_FALSE(*store->find(row.id));
}

TEST_F(JobStoreTest, RemovingAJobTakesItsTextAlong) {
  const JobRow row = completed();
  ASSERT_TRUE(store->remove(row.seq));
  EXPECT_FALSE(*store->find(row.id));
  for (const char* table : {"chunk", "request", "state_change"})
    EXPECT_EQ(raw_value(file, std::string("SELECT count(*) FROM ") + table), "0") << table;
}

// --- opening ------------------------------------------------------------------------------------

TEST_F(JobStoreTest, TheFilesArePrivateUnderAnyUmask) {
  store.reset();
  fs::remove(file);
  const mode_t old = ::umask(0);
  open();
  insert();
  ::umask(old);
  for (const char* name : {"ponder.db", "ponder.db-wal", "ponder.db-shm"}) {
    struct stat s {};
    ASSERT_EQ(::stat((dir / name).c_str(), &s), 0) << name;
    EXPECT_EQ(s.st_mode & 0777, 0600u) << name;
  }
}

TEST_F(JobStoreTest, ALinkInPlaceOfTheDatabaseIsRefused) {
  fs::create_symlink(file, dir / "link.db");
  auto opened = JobStore::open(dir / "link.db");
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::storage);
  // A link to the directory is the owner's business.
  store.reset();
  fs::create_directory_symlink(dir.path(), dir / "dirlink");
  EXPECT_TRUE(JobStore::open(dir / "dirlink" / "ponder.db"));
}

TEST_F(JobStoreTest, ANewerSchemaAndForeignFilesAreRefused) {
  store.reset();
  ASSERT_EQ(raw_sql(file, "PRAGMA user_version=99"), "");
  auto newer = JobStore::open(file);
  ASSERT_FALSE(newer);
  EXPECT_NE(newer.error().message.find("version 99"), std::string::npos);
  EXPECT_NE(newer.error().hint.find("knows version 99"), std::string::npos);
  ASSERT_EQ(raw_sql(dir / "other.db", "CREATE TABLE t(x)"), "");
  auto foreign = JobStore::open(dir / "other.db");
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("another program"), std::string::npos);
}

// 7a row 8, beads#920, WSL#2395, and 7a row 9, opencode#14970: a database on a network's or
// Windows's file system failed in odd ways, or was damaged.
TEST(Sqlite, FileSystemsWithoutLocksAreNamed) {
  EXPECT_EQ(filesystem_kind(0x6969).name, "NFS");
  for (const std::uint64_t magic :
       {0x6969ull, 0xFF534D42ull, 0xFE534D42ull, 0x01021997ull, 0x65735546ull,
        0xFFFFFFFFFF534D42ull /* sign-extended on some machines */})
    EXPECT_FALSE(filesystem_kind(magic).locks_hold) << magic;
  EXPECT_TRUE(filesystem_kind(0xEF53).locks_hold);
  EXPECT_TRUE(filesystem_kind(0x01021994).in_memory);
  EXPECT_EQ(filesystem_kind(0xEF53).name, "");
}

// 7a row 6: SQLite's race of log resets needs two connections. 7a row 10, camstack/server: closing
// a file of the database for its own ends dropped the locks of the process.
TEST(Sqlite, AProcessOpensADatabaseOnce) {
  TempDir dir;
  auto db = Database::open(dir / "t.db");
  ASSERT_TRUE(db);
  fs::create_directory_symlink(dir.path(), dir / "link");
  for (const fs::path& file : {dir / "t.db", dir / "link" / "t.db"})
    for (const Access access : {Access::read_write, Access::read_only}) {
      auto second = Database::open(file, access);
      ASSERT_FALSE(second);
      EXPECT_NE(second.error().message.find("open already"), std::string::npos);
    }
  auto moved = std::move(*db);
  EXPECT_FALSE(Database::open(dir / "t.db"));
  { const Database gone = std::move(moved); }
  EXPECT_TRUE(Database::open(dir / "t.db"));
}

TEST(Sqlite, ATransactionThatFailsKeepsNothing) {
  TempDir dir;
  auto db = Database::open(dir / "t.db");
  ASSERT_TRUE(db);
  ASSERT_TRUE(db->execute("CREATE TABLE t(x INTEGER) STRICT"));
  const auto failed = db->transaction(Durability::full, [&]() -> Result<void> {
    EXPECT_TRUE(db->execute("INSERT INTO t VALUES(1)"));
    return fail(ErrorCode::internal, "no");
  });
  EXPECT_FALSE(failed);
  EXPECT_EQ(*db->pragma_integer("SELECT count(*) FROM t"), 0);
  EXPECT_EQ(*db->pragma_integer("PRAGMA synchronous"), 2);
  ASSERT_TRUE(db->transaction(Durability::normal, [] { return Result<void>(); }));
  EXPECT_EQ(*db->pragma_integer("PRAGMA synchronous"), 1);
}

}  // namespace
}  // namespace ponder::jobs
