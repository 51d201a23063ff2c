// What becomes of a database that is not what was written: by bits, pages, whole files.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <random>

#include "jobs/store/job_store.h"
#include "jobs/store/log_check.h"
#include "jobs/store/offline_check.h"
#include "jobs/store/rebuild.h"
#include "jobs/store/sqlite.h"
#include "jobs/submission.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {
namespace fs = std::filesystem;

std::string bytes_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_bytes(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  fs::permissions(file, fs::perms::owner_read | fs::perms::owner_write);
}

class StoreDamage : public ::testing::Test {
 protected:
  void open() {
    store.reset();
    auto opened = JobStore::open(file);
    ASSERT_TRUE(opened) << opened.error().message << " " << opened.error().hint;
    store = std::move(*opened);
  }
  JobRow insert(const std::string& key = {}) {
    JobRow row;
    row.id = new_job_id(1000);
    row.workspace = "/w";
    row.idempotency_key = key;
    row.body_sha256 = sha256_of(row.id);
    row.effort_requested = "xhigh";
    row.created_ms = 1000;
    EXPECT_TRUE(store->insert(row, "{\"prompt\":\"of " + row.id + "\"}"));
    return row;
  }
  JobRow claim(const JobRow& row, const char* instance) {
    StateChange change;
    auto claimed = store->claim(row.id, instance, 2000, change);
    EXPECT_TRUE(claimed && *claimed);
    return **claimed;
  }
  static Fence fence(const JobRow& row) { return {row.seq, row.id, row.claims, row.instance}; }
  static Progress chunk(std::string text, std::int64_t number) {
    Progress p;
    p.chunks.push_back({Channel::answer, std::move(text), {1, 2}});
    p.next_chunk = number;
    p.attempt = 1;
    return p;
  }
  static std::string text_of_job(int number) {
    return std::string(1500, static_cast<char>('a' + number % 26)) + std::to_string(number);
  }
  JobRow complete(int number) {
    const JobRow row = claim(insert(), "me");
    JobText text;
    text.append(Channel::answer, text_of_job(number));
    text.append(Channel::answer, "end");
    EXPECT_TRUE(store->append(fence(row), chunk(text_of_job(number), 0)));
    Leave leave;
    leave.state = State::completed;
    leave.at_ms = 3000;
    StateChange change;
    EXPECT_TRUE(*store->leave(fence(row), chunk("end", 1), text, leave, change));
    texts[row.id] = text.of(Channel::answer);
    return **store->find(row.id);
  }
  /// As after kill -9: the files as they are now.
  void crash() {
    const std::string db = bytes_of(file), log = bytes_of(log_of_file());
    store.reset();
    write_bytes(file, db);
    write_bytes(log_of_file(), log);
    fs::remove(dir / "ponder.db-shm");
  }
  fs::path log_of_file() const { return dir / "ponder.db-wal"; }

  /// Every job that was told is whole, says that it lost something, or is unknown while a note
  /// tells of damage. No text is another than the one that was stored.
  void expect_honest(const std::string& what) {
    const bool told = !damage_note(file).empty() || !store->start_note().empty();
    for (const auto& [id, text] : texts) {
      auto row = store->find(id);
      ASSERT_TRUE(row) << what << ": " << row.error().message;
      if (!*row) {
        EXPECT_TRUE(told) << what << ": " << id << " is gone without a word";
        continue;
      }
      if ((*row)->state == State::failed) {
        EXPECT_EQ((*row)->reason, Reason::storage) << what;
        EXPECT_TRUE(told) << what;
        continue;
      }
      auto read = store->text(**row);
      if (!read) {
        EXPECT_EQ(read.error().code, ErrorCode::storage) << what;
      } else if ((*row)->state == State::completed) {
        EXPECT_TRUE(read->text.of(Channel::answer) == text) << what << ": a wrong text of " << id;
      } else {
        EXPECT_TRUE(told && text.starts_with(read->text.of(Channel::answer))) << what;
      }
    }
    JobRow row = insert();  // the queue works
    EXPECT_TRUE(store->list({})) << what;
    EXPECT_EQ((*store->find(row.id))->state, State::queued) << what;
  }

  TempDir dir;
  fs::path file = dir / "ponder.db";
  std::unique_ptr<JobStore> store;
  std::map<std::string, std::string> texts;
};

TEST_F(StoreDamage, EveryChangedColumnOfARowIsNoticedAndTheRestIsSaved) {
  const char* changes[] = {"label='x'",         "state='incomplete', reason='stalled'",
                           "facts='{\"a\":1}'", "body_sha256=zeroblob(32)",
                           "seal=NULL",         "request_crc32=1",
                           "workspace='/v'"};
  for (const char* change : changes) {
    open();
    const JobRow other = complete(1);
    const JobRow row = complete(2);
    ASSERT_EQ(
        raw_sql(file, "DROP TRIGGER job_terminal; DROP TRIGGER job_legal_move; UPDATE job SET " +
                          std::string(change) + " WHERE id='" + row.id + "'"),
        "");
    auto found = store->find(row.id);  // mended in the middle of the call
    ASSERT_TRUE(found && *found) << change << ": " << found.error().message;
    EXPECT_EQ((*found)->state, State::failed) << change;
    EXPECT_EQ((*found)->reason, Reason::storage) << change;
    EXPECT_EQ((*found)->error_message, "lost: storage damage");
    auto left = store->text(**found);
    ASSERT_TRUE(left) << left.error().message;
    EXPECT_EQ(left->text.of(Channel::answer), texts[row.id]);  // it had not changed
    EXPECT_EQ((*store->find(other.id))->state, State::completed) << change;
    EXPECT_EQ(store->text(other)->text.of(Channel::answer), texts[other.id]);
    EXPECT_NE(damage_note(file).find("1 job is whole, 1 says what was lost"), std::string::npos)
        << damage_note(file);
    store.reset();
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    texts.clear();
  }
}

TEST_F(StoreDamage, AWriteLeavesADamagedRowAloneInsteadOfSealingIt) {
  open();
  const JobRow row = claim(insert(), "me");
  ASSERT_EQ(raw_sql(file, "UPDATE job SET label='x'"), "");
  auto appended = store->append(fence(row), chunk("more", 0));
  ASSERT_TRUE(appended);
  EXPECT_FALSE(*appended);  // it has ended: the attempt is over
  EXPECT_EQ((*store->find(row.id))->state, State::failed);
}

TEST_F(StoreDamage, DestroyedPagesCostTheJobsOnThemAndNoOthers) {
  open();
  for (int i = 0; i < 40; ++i)
    complete(i);
  store.reset();
  std::string bytes = bytes_of(file);
  for (std::size_t page = 30; page < 33; ++page)
    bytes.replace(page * 4096, 4096, std::string(4096, '\x5a'));
  write_bytes(file, bytes);
  open();
  expect_honest("three pages");
  int whole = 0;
  for (const auto& [id, text] : texts)
    if (auto row = store->find(id); *row && (*row)->state == State::completed) ++whole;
  EXPECT_GE(whole, 25);
  // What was damaged lies there untouched, under one stamp.
  int kept = 0;
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(name.find(".fresh"), std::string::npos);
    EXPECT_EQ(name.find(".salvage"), std::string::npos);
    struct stat s {};
    ASSERT_EQ(::stat(entry.path().c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0600u) << name;
    if (name.starts_with("ponder.db.damaged-") && !name.ends_with(".txt") &&
        !name.ends_with("-wal") && !name.ends_with("-shm")) {
      EXPECT_TRUE(bytes_of(entry.path()) == bytes);
      ++kept;
    }
  }
  EXPECT_EQ(kept, 1);
  // It is said until its report is removed, and a later start finds nothing new.
  open();
  EXPECT_FALSE(damage_note(file).empty());
  for (const auto& entry : fs::directory_iterator(dir.path()))
    if (entry.path().extension() == ".txt") fs::remove(entry.path());
  EXPECT_TRUE(damage_note(file).empty());
}

TEST_F(StoreDamage, AFlippedBitAnywhereInTheDatabaseIsNeverAWrongText) {
  open();
  for (int i = 0; i < 12; ++i)
    complete(i);
  for (int i = 0; i < 3; ++i)
    insert();
  store.reset();
  const std::string good = bytes_of(file);
  std::mt19937 random(7);
  for (int round = 0; round < 24; ++round) {
    std::string bytes = good;
    // The first rounds go through the header, where each field means something else.
    const std::size_t at =
        round < 10 ? static_cast<std::size_t>(round) * 9 : random() % good.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    write_bytes(file, bytes);
    SCOPED_TRACE("a flip at " + std::to_string(at));
    open();
    if (HasFatalFailure()) return;
    expect_honest("a flip at " + std::to_string(at));
    store.reset();
  }
}

TEST_F(StoreDamage, AFlippedBitInTheLogCostsWhatItDamagesAndNotWhatFollows) {
  open();
  for (int i = 0; i < 6; ++i)
    complete(i);
  crash();
  const std::string db = bytes_of(file), log = bytes_of(log_of_file());
  ASSERT_GT(log.size(), 30u * 4120);
  EXPECT_EQ(check_log(log_of_file(), dir / "ponder.db-shm")->verdict, LogState::Verdict::whole);
  std::mt19937 random(9);
  int saved = 0;
  for (int round = 0; round < 14; ++round) {
    std::string bytes = log;
    const std::size_t at = round < 4 ? static_cast<std::size_t>(round) * 11 : random() % log.size();
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (random() % 8)));
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    write_bytes(file, db);
    write_bytes(log_of_file(), bytes);
    open();
    if (HasFatalFailure()) return;
    expect_honest("a flip in the log at " + std::to_string(at));
    for (const auto& [id, text] : texts)
      if (auto row = store->find(id); *row && (*row)->state == State::completed) ++saved;
    store.reset();
  }
  EXPECT_GE(saved, 14 * 6 * 8 / 10);
}

TEST_F(StoreDamage, ATornLastWriteIsNoDamage) {
  open();
  complete(1);
  const std::size_t before = bytes_of(log_of_file()).size();
  insert();
  crash();
  std::string log = bytes_of(log_of_file());
  for (const std::size_t cut : {std::size_t{1}, std::size_t{2000}, log.size() - before - 4120}) {
    write_bytes(log_of_file(), log.substr(0, log.size() - cut));
    EXPECT_NE(check_log(log_of_file(), dir / "ponder.db-shm")->verdict, LogState::Verdict::damaged)
        << cut;
  }
  log.replace(log.size() - 4000, 4000, std::string(4000, '\0'));
  write_bytes(log_of_file(), log);
  EXPECT_EQ(check_log(log_of_file(), dir / "ponder.db-shm")->verdict, LogState::Verdict::torn);
  open();
  EXPECT_TRUE(damage_note(file).empty());
  EXPECT_NE(store->start_note(), "");
  expect_honest("a torn write");
}

TEST_F(StoreDamage, TheIndexOfTheLogTellsACutFromACrash) {
  open();
  complete(1);
  insert();
  const std::string db = bytes_of(file), log = bytes_of(log_of_file());
  const std::string index = bytes_of(dir / "ponder.db-shm");
  store.reset();
  const auto verdict = [&](const std::string& of_log) {
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    write_bytes(file, db);
    if (!of_log.empty()) write_bytes(log_of_file(), of_log);
    write_bytes(dir / "ponder.db-shm", index);
    return check_log(log_of_file(), dir / "ponder.db-shm")->verdict;
  };
  EXPECT_EQ(verdict(log), LogState::Verdict::whole);
  // A write that the crash cut short: more than the index has heard of.
  EXPECT_EQ(verdict(log + log.substr(32, 3000)), LogState::Verdict::whole);
  std::string unfinished = log + log.substr(log.size() - 4120, 24) + std::string(4096, '\0');
  EXPECT_EQ(verdict(unfinished), LogState::Verdict::whole);
  std::string flipped = log;  // the last frame of a commit that was told
  flipped[flipped.size() - 100] ^= 1;
  EXPECT_EQ(verdict(flipped), LogState::Verdict::cut);
  EXPECT_EQ(verdict(""), LogState::Verdict::cut);  // somebody deleted it
  EXPECT_EQ(verdict(log.substr(0, 32 + 4120 * 3)), LogState::Verdict::cut);
  std::string headless = log.substr(0, 300);
  headless[0] ^= 1;
  EXPECT_EQ(verdict(headless), LogState::Verdict::cut);
  open();
  EXPECT_NE(store->start_note().find("the end of the log"), std::string::npos);
  expect_honest("a log that was cut");
}

TEST_F(StoreDamage, FilesThatAreEmptyOrGoneAreNoNewDatabase) {
  for (const char* what : {"emptied", "gone beside its log", "text"}) {
    open();
    complete(1);
    crash();
    if (std::string(what) == "emptied") write_bytes(file, "");
    if (std::string(what) == "text") write_bytes(file, std::string(10'000, 'x'));
    if (std::string(what) == "gone beside its log") fs::remove(file);
    open();
    expect_honest(what);
    EXPECT_FALSE(damage_note(file).empty()) << what;
    store.reset();
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    texts.clear();
  }
}

TEST_F(StoreDamage, ARebuildThatWasCutShortIsFinishedByTheNextStart) {
  open();
  const JobRow row = complete(1);
  store.reset();
  const std::string good = bytes_of(file);
  for (const char* moved : {"nothing", "log", "all"}) {
    for (const auto& entry : fs::directory_iterator(dir.path()))
      fs::remove(entry.path());
    write_bytes(dir / "ponder.db.rebuilt-20260101T000000000", good);
    write_bytes(dir / "ponder.db.damaged-20260101T000000000.txt", "it was damaged\n");
    write_bytes(dir / "ponder.db.fresh", "half made");
    const std::string aside = "ponder.db.damaged-20260101T000000000";
    const bool all = std::string(moved) == "all";
    write_bytes(dir / (all ? aside : "ponder.db").c_str(), "the damaged one");
    write_bytes(dir / (std::string(moved) == "nothing" ? "ponder.db-wal" : aside + "-wal").c_str(),
                "its log");
    open();
    EXPECT_EQ((*store->find(row.id))->state, State::completed) << moved;
    EXPECT_EQ(bytes_of(dir / aside.c_str()), "the damaged one") << moved;
    EXPECT_EQ(bytes_of(dir / (aside + "-wal").c_str()), "its log") << moved;
    EXPECT_FALSE(fs::exists(dir / "ponder.db.fresh"));
    store.reset();
  }
}

TEST_F(StoreDamage, WithoutRoomToSaveTheJobsNothingIsChanged) {
  open();
  for (int i = 0; i < 20; ++i)
    complete(i);
  store.reset();
  std::string bytes = bytes_of(file);
  bytes.replace(20 * 4096, 4096, std::string(4096, '\x5a'));
  write_bytes(file, bytes);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 40'000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto opened = JobStore::open(file);
  ::setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_FALSE(opened);
  EXPECT_NE(opened.error().message.find("could not be saved"), std::string::npos)
      << opened.error().message;
  EXPECT_NE(opened.error().hint.find("make room"), std::string::npos);
  EXPECT_TRUE(bytes_of(file) == bytes);
  for (const auto& entry : fs::directory_iterator(dir.path()))
    EXPECT_TRUE(entry.path().filename().string().find(".damaged") == std::string::npos) << entry;
  open();
  expect_honest("with room again");
}

TEST_F(StoreDamage, OnlyTheNewestSetsAreKept) {
  for (int i = 0; i < 5; ++i) {
    open();
    insert();
    store.reset();
    write_bytes(file, "x");
  }
  open();
  int reports = 0;
  for (const auto& entry : fs::directory_iterator(dir.path()))
    if (entry.path().extension() == ".txt") ++reports;
  EXPECT_EQ(reports, 3);
}

TEST_F(StoreDamage, ALiveJobGoesOnFromTheTextThatIsLeftAndOneWithoutItsRequestFails) {
  open();
  const JobRow resumes = claim(insert(), "dead");
  ASSERT_TRUE(store->append(fence(resumes), chunk("good ", 0)));
  ASSERT_TRUE(store->append(fence(resumes), chunk("bad", 1)));
  const JobRow unasked = insert("key");
  const JobRow other = complete(1);
  store.reset();
  ASSERT_EQ(raw_sql(file,
                    "DROP TRIGGER chunk_never_changes; DROP TRIGGER job_terminal;"
                    "UPDATE chunk SET text=x'42' WHERE seq=1 AND job=" +
                        std::to_string(resumes.seq) +
                        "; UPDATE request SET body='{\"prompt\":\"another\"}' WHERE job=" +
                        std::to_string(unasked.seq) +
                        "; UPDATE job SET label='x' WHERE seq=" + std::to_string(other.seq)),
            "");
  open();
  ASSERT_TRUE(store->recover("alive", 9000));
  const JobRow again = **store->find(resumes.id);
  EXPECT_EQ(again.state, State::queued);
  EXPECT_EQ(store->load_undamaged(again.seq)->text.of(Channel::answer), "good ");
  ASSERT_TRUE(store->changes(again.seq));
  EXPECT_EQ(store->changes(again.seq)->back().state, State::queued);
  const JobRow failed = **store->find(unasked.id);
  EXPECT_EQ(failed.state, State::failed);
  EXPECT_EQ(failed.note, "lost: storage damage (its request)");
  EXPECT_FALSE(*store->find_key("key"));  // sent again it is a new job
  // The triggers are back.
  EXPECT_NE(raw_sql(file, "UPDATE job SET state='queued' WHERE seq=" + std::to_string(failed.seq)),
            "");
}

TEST_F(StoreDamage, AJobThatIsBeingWorkedOnDoesNotGoBackInItsText) {
  open();
  ASSERT_TRUE(store->recover("me", 1));
  const JobRow row = claim(insert(), "me");
  ASSERT_TRUE(store->append(fence(row), chunk("first ", 0)));
  const JobRow fine = claim(insert(), "me");
  ASSERT_TRUE(store->append(fence(fine), chunk("fine", 0)));
  ASSERT_EQ(
      raw_sql(file, "DROP TRIGGER chunk_never_changes; UPDATE chunk SET text=x'42' WHERE job=" +
                        std::to_string(row.seq) +
                        "; UPDATE job SET label='x' WHERE seq=" + std::to_string(insert().seq)),
      "");
  EXPECT_TRUE(store->live());
  EXPECT_FALSE(*store->append(fence(row), chunk("second", 1)));
  EXPECT_TRUE(*store->append(fence(fine), chunk(" and more", 1)));
  EXPECT_EQ((*store->find(row.id))->state, State::failed);
}

TEST_F(StoreDamage, ALogThatAReaderHoldsOpenIsBoundedAndEndsAreStillWritten) {
  // 7a row 7, DeusData/codebase-memory-mcp#1083: a log of 115 GB beside one reader.
  StoreLimits limits;
  limits.log_bytes = 1 << 20;
  auto opened = JobStore::open(file, limits);
  ASSERT_TRUE(opened);
  store = std::move(*opened);
  const JobRow row = claim(insert(), "me");
  sqlite3* reader = nullptr;
  ASSERT_EQ(sqlite3_open_v2(file.c_str(), &reader, SQLITE_OPEN_READONLY, nullptr), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM job", nullptr, nullptr, nullptr),
            SQLITE_OK);
  JobText text;
  std::int64_t number = 0;
  Result<bool> appended = true;
  while (appended && number < 1000) {
    appended = store->append(fence(row), chunk(std::string(8000, 'x'), number));
    if (appended) text.append(Channel::answer, std::string(8000, 'x'));
    if (appended) ++number;
  }
  ASSERT_FALSE(appended);
  EXPECT_NE(appended.error().message.find("reads ponder.db"), std::string::npos);
  EXPECT_LT(fs::file_size(log_of_file()), 2u << 20);
  EXPECT_FALSE(store->probe());
  Leave leave;
  leave.state = State::completed;
  StateChange change;
  Progress none;
  none.next_chunk = number;
  none.attempt = 1;
  EXPECT_TRUE(*store->leave(fence(row), none, text, leave, change));
  sqlite3_close(reader);
  EXPECT_TRUE(store->probe());
  insert();
  EXPECT_FALSE(store->maintain(true));
  EXPECT_EQ(fs::file_size(log_of_file()), 0u);
}

TEST_F(StoreDamage, FreePagesAreGivenBackInIdleSlices) {
  open();
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (int i = 0; i < 3; ++i) {
    const JobRow row = claim(insert(), "me");
    const std::string big(3 << 20, 'x');
    JobText text;
    text.append(Channel::answer, big);
    Leave leave;
    leave.state = State::completed;
    StateChange change;
    ASSERT_TRUE(*store->leave(fence(row), chunk(big, 0), text, leave, change));
    all.emplace_back(row.seq, "was completed");
  }
  ASSERT_TRUE(store->expire(all));
  store->checkpoint();
  const auto full = fs::file_size(file);
  int slices = 1;
  while (store->maintain(true) && slices < 100)
    ++slices;
  EXPECT_GT(slices, 3);
  EXPECT_LT(fs::file_size(file), full / 4);
}

TEST_F(StoreDamage, AnotherProcessThatHoldsTheDatabaseIsTriedAgainSoonAndNeverWaitedFor) {
  // T19, mksglu/context-mode#218 and others: "database is locked" must not stop the queue's thread.
  open();
  const JobRow row = insert();
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  JobRow refused;
  refused.id = new_job_id(1);
  refused.body_sha256 = sha256_of("x");
  refused.effort_requested = "low";
  const auto began = std::chrono::steady_clock::now();
  const auto inserted = store->insert(refused, "{}");
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(2));
  ASSERT_FALSE(inserted);
  EXPECT_EQ(inserted.error().code, ErrorCode::loading);  // what clients try again
  EXPECT_TRUE(*store->find(row.id));
  sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(other);
  EXPECT_TRUE(store->insert(refused, "{}"));
}

TEST_F(StoreDamage, TheOfflineCheckNamesWhatIsDamagedAndChangesNothing) {
  open();
  const JobRow good = complete(1);
  const JobRow text = complete(2);
  const JobRow row = complete(3);
  const JobRow request = insert();
  store.reset();
  fs::permissions(dir.path(), fs::perms::owner_all);
  json::object report = check_database_offline(file);
  EXPECT_EQ(report.at("ok"), true) << to_json(report);
  EXPECT_EQ(report.at("texts_checked"), 4);
  EXPECT_EQ(report.at("jobs").at("completed"), 3);
  ASSERT_EQ(raw_sql(file,
                    "DROP TRIGGER chunk_never_changes; DROP TRIGGER job_terminal;"
                    "UPDATE chunk SET text=x'42' WHERE seq=1 AND job=" +
                        std::to_string(text.seq) +
                        "; UPDATE request SET body='{}' WHERE job=" + std::to_string(request.seq) +
                        "; UPDATE job SET label='x' WHERE seq=" + std::to_string(row.seq)),
            "");
  const std::string before = bytes_of(file);
  report = check_database_offline(file);
  EXPECT_EQ(report.at("ok"), false);
  EXPECT_EQ(report.at("damaged").as_array().size(), 3u) << to_json(report);
  EXPECT_TRUE(bytes_of(file) == before);
  EXPECT_EQ(bytes_of(log_of_file()), "");
  EXPECT_EQ(to_json(report).find(good.id), std::string::npos);
  report = check_database_offline(dir / "none.db");
  EXPECT_EQ(report.at("ok"), true);
  EXPECT_FALSE(fs::exists(dir / "none.db"));
}

}  // namespace
}  // namespace ponder::jobs
