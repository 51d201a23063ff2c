#include "clients/cli/envelope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/clock.h"

namespace ponder::cli {
namespace {

TEST(EnvelopeTest, MissingAndWrongFieldsCountAsNull) {
  const json::object o{{"a", {{"b", "x"}, {"n", 3}}}, {"l", json::array{"p", 1, "q"}}};
  EXPECT_EQ(text_at(o, "a.b"), "x");
  EXPECT_EQ(text_at(o, "a.n"), "");
  EXPECT_EQ(text_at(o, "a.b.c"), "");
  EXPECT_EQ(text_at(o, "z"), "");
  EXPECT_EQ(number_at(o, "a.n"), 3.0);
  EXPECT_FALSE(number_at(o, "a.b"));
  EXPECT_EQ(words_at(o, "l"), "p, q");
  EXPECT_TRUE(objects_at(o, "l").empty());
}

TEST(EnvelopeTest, ReadsTheTimesThatTheDaemonWrites) {
  for (const std::int64_t ms : {0LL, 951'782'400'000LL, 1'709'251'199'999LL, 1'795'982'400'123LL})
    EXPECT_EQ(read_time(rfc3339(ms)), ms) << rfc3339(ms);
  EXPECT_FALSE(read_time("yesterday"));
  EXPECT_FALSE(read_time("2026-13-01T00:00:00Z"));
}

TEST(EnvelopeTest, SaysDurationsAndSizesInWords) {
  EXPECT_EQ(duration_in_words(-3), "0.0s");
  EXPECT_EQ(duration_in_words(0.23), "0.2s");
  EXPECT_EQ(duration_in_words(59.6), "60s");
  EXPECT_EQ(duration_in_words(600), "10m");
  EXPECT_EQ(duration_in_words(3 * 3600), "3h");
  EXPECT_EQ(duration_in_words(5 * 86'400), "5d");
  EXPECT_EQ(bytes_in_words(512), "512 bytes");
  EXPECT_EQ(bytes_in_words(1.5 * 1024 * 1024 * 1024), "1.5 GiB");
}

TEST(EnvelopeTest, AStateSaysItsReasonPhaseOrPosition) {
  EXPECT_EQ(state_in_words({{"state", "incomplete"}, {"reason", "deadline"}}),
            "incomplete (deadline)");
  EXPECT_EQ(state_in_words({{"state", "running"}, {"phase", "thinking"}}), "running (thinking)");
  EXPECT_EQ(state_in_words({{"state", "queued"}, {"position", 3}}), "queued #3");
  EXPECT_EQ(state_in_words({{"state", "completed"}, {"phase", "answering"}}), "completed");
}

TEST(EnvelopeTest, ATokenCountThatNobodyKnowsIsNo0) {
  const json::object job{
      {"state", "interrupted"},
      {"tokens", {{"prompt", 12}, {"cached", 0}, {"reasoning", nullptr}, {"answer", nullptr}}}};
  EXPECT_THAT(job_screen(job, 0),
              testing::HasSubstr("12 prompt (0 cached), - reasoning, - answer\n"));
}

TEST(EnvelopeTest, ATableKeepsEachJobOnOneLineOfPrintableText) {
  const std::vector<json::object> jobs{{{"job_id", "a"},
                                        {"state", "queued"},
                                        {"created_at", "2026-11-29T20:00:00Z"},
                                        {"effort", "xhigh"},
                                        {"label", "two\nlines\x1b[31m"}},
                                       {{"job_id", "b"},
                                        {"state", "completed"},
                                        {"created_at", "2026-11-29T19:00:00Z"},
                                        {"run_s", 65},
                                        {"effort", "low"},
                                        {"label", std::string(100, 'x')}}};
  const std::string table = job_table(jobs, *read_time("2026-11-29T20:00:40Z"));
  EXPECT_EQ(table,
            "JOB  STATE      AGE  RAN  EFFORT  LABEL\n"
            "a    queued     40s  -    xhigh   two lines\\u001b[31m\n"
            "b    completed  61m  65s  low     " +
                std::string(59, 'x') + "…\n");
}

}  // namespace
}  // namespace ponder::cli
