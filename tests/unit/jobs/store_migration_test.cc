// Databases of every released schema, brought to the newest one.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "jobs/store/job_store.h"
#include "jobs/store/migrate.h"
#include "jobs/store/rebuild.h"
#include "tests/unit/jobs/queue_fixture.h"

namespace ponder::jobs {
namespace {
namespace fs = std::filesystem;

class StoreMigration : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::ifstream in(std::string(PONDER_SOURCE_DIR) + "/tests/fault/fixtures/schema_" +
                     std::to_string(GetParam()) + ".sql");
    const std::string sql{std::istreambuf_iterator<char>(in), {}};
    ASSERT_FALSE(sql.empty());
    ASSERT_EQ(raw_sql(file, sql), "");
  }
  std::string ids() {
    return raw_value(file, "SELECT group_concat(id || state || reason || answer_chars) FROM job");
  }
  TempDir dir;
  fs::path file = dir / "ponder.db";
};
INSTANTIATE_TEST_SUITE_P(EveryReleasedSchema, StoreMigration, ::testing::Values(1, 2));

TEST_P(StoreMigration, EveryJobComesAlongAndACopyStays) {
  const std::string before = ids();
  const mode_t mask = ::umask(0);
  auto store = JobStore::open(file);
  ::umask(mask);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_EQ(ids(), before);
  EXPECT_EQ(raw_value(file, "PRAGMA user_version"), std::to_string(newest_schema()));
  EXPECT_EQ(damage_note(file), "");
  ListFilter all;
  all.limit = 1000;
  const auto rows = (*store)->list(all);  // which reads every seal
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_GE(rows->size(), 8u);
  for (const JobRow& row : *rows) {
    EXPECT_TRUE((*store)->text(row));
    EXPECT_TRUE((*store)->request(row.seq));
    EXPECT_TRUE((*store)->changes(row.seq));
  }
  const fs::path copy = dir / "ponder.db.before-3";
  struct stat s {};
  ASSERT_EQ(::stat(copy.c_str(), &s), 0);
  EXPECT_EQ(s.st_mode & 0777, 0600u);
  EXPECT_EQ(raw_value(copy, "PRAGMA user_version"), std::to_string(GetParam()));
  EXPECT_EQ(raw_value(copy, "SELECT group_concat(id || state || reason || answer_chars) FROM job"),
            before);
  EXPECT_EQ(raw_value(copy, "PRAGMA integrity_check"), "ok");
  store->reset();
  fs::remove(copy);
  ASSERT_TRUE(JobStore::open(file));
  EXPECT_FALSE(fs::exists(copy));  // there was nothing to change
}

TEST_P(StoreMigration, WithoutRoomForTheCopyNothingIsChanged) {
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  rlimit small = old;
  small.rlim_cur = 40'000;  // room for SQLite's own small files
  ::setrlimit(RLIMIT_FSIZE, &small);
  auto store = JobStore::open(file);
  ::setrlimit(RLIMIT_FSIZE, &old);
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message.find("the copy that is made first failed"), std::string::npos)
      << store.error().message;
  EXPECT_NE(store.error().hint.find("make room for"), std::string::npos);
  EXPECT_EQ(raw_value(file, "PRAGMA user_version"), std::to_string(GetParam()));
  for (const auto& entry : fs::directory_iterator(dir.path()))
    EXPECT_EQ(entry.path().string().find("before"), std::string::npos) << entry;
  EXPECT_TRUE(JobStore::open(file));
}

TEST_P(StoreMigration, OfTheCopiesTheNewestThreeStay) {
  for (const char* name :
       {"ponder.db.before-1", "ponder.db.before-2", "ponder.db.before-0", "ponder.db.before-mine"})
    std::ofstream(dir / name) << "x";
  ASSERT_TRUE(JobStore::open(file));
  EXPECT_FALSE(fs::exists(dir / "ponder.db.before-0"));
  for (const char* name :
       {"ponder.db.before-1", "ponder.db.before-2", "ponder.db.before-3", "ponder.db.before-mine"})
    EXPECT_TRUE(fs::exists(dir / name)) << name;
}

TEST_P(StoreMigration, ADamagedOldDatabaseIsSavedAndMigrated) {
  // One page of many, in the middle: texts or rows of some job.
  std::string bytes;
  {
    std::ifstream in(file, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  bytes.replace(bytes.size() - 4096, 4096, std::string(4096, '\x5a'));
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
  auto store = JobStore::open(file);
  ASSERT_TRUE(store) << store.error().message;
  EXPECT_NE(damage_note(file), "");
  EXPECT_EQ(raw_value(file, "PRAGMA user_version"), std::to_string(newest_schema()));
  EXPECT_EQ(raw_value(file, "PRAGMA integrity_check"), "ok");
}

}  // namespace
}  // namespace ponder::jobs
