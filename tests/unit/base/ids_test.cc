#include "engine/base/ids.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

namespace ponder {
TEST(Ids, HaveTheFormOfTheContract) {
  const std::string id = new_job_id(1'764'446'400'123);
  EXPECT_EQ(id.size(), 26u);
  EXPECT_TRUE(is_job_id(id));
}

TEST(Ids, SortByCreationAlsoWithinAMillisecondAndWhenTheClockGoesBack) {
  std::string last = new_job_id(2'000'000'000'000);
  for (int i = 0; i < 10'000; ++i) {
    const std::string next = new_job_id(i < 5'000 ? 2'000'000'000'000 : 1'000'000'000'000);
    EXPECT_LT(last, next);
    last = next;
  }
  EXPECT_LT(last, new_job_id(2'000'000'000'001));
}

TEST(Ids, GoOnAfterTheLastOneOfAnEarlierProcess) {
  // Another process made these, by a clock that was ahead; later ids come after them all the same.
  const std::string last = "02n4wwk6a0zzzzzzzzzzzzzzzz";
  continue_job_ids(last);
  const std::string next = new_job_id(1'000'000'000'000);
  EXPECT_EQ(next, "02n4wwk6a10000000000000000");
  continue_job_ids("02n4wwk6900000000000000000");  // an earlier one changes nothing
  EXPECT_EQ(new_job_id(1'000'000'000'000), "02n4wwk6a10000000000000001");
  for (const char* none : {"", "oooooooooooooooooooooooooo", "zzzzzzzzzzzzzzzzzzzzzzzzzz"})
    continue_job_ids(none);
  EXPECT_EQ(new_job_id(1'000'000'000'000), "02n4wwk6a10000000000000002");
}

TEST(Ids, AreUniqueAcrossThreads) {
  std::vector<std::vector<std::string>> made(8);
  std::vector<std::thread> threads;
  for (auto& mine : made)
    threads.emplace_back([&mine] {
      for (int i = 0; i < 2'000; ++i)
        mine.push_back(new_job_id(2'100'000'000'000));
    });
  for (auto& t : threads)
    t.join();
  std::set<std::string> all;
  for (const auto& mine : made)
    all.insert(mine.begin(), mine.end());
  EXPECT_EQ(all.size(), 16'000u);
}

TEST(Ids, RefuseEverythingElse) {
  for (const char* bad : {"", "short", "../../../../etc/passwd/aaaa", "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
                          "abcdefghijklmnopqrstuvwxy!", "abcdefghijklmnopqrstuvwxyzz"})
    EXPECT_FALSE(is_job_id(bad)) << bad;
  EXPECT_FALSE(is_job_id(std::string_view("abcdefghijklmnopqrstuvwxy\0", 26)));
}

TEST(Ids, RandomHexIsAsLongAsAskedAndNotConstant) {
  EXPECT_EQ(random_hex(32).size(), 64u);
  EXPECT_NE(random_hex(32), random_hex(32));
}
}  // namespace ponder
