// What both programs ask the daemon when they look at a job.
#include "clients/cpp/job_look.h"

#include <gtest/gtest.h>

namespace ponder::client {
namespace {

TEST(JobLookTest, ALookWithoutWishesIsTheJob) {
  EXPECT_EQ(look_target("abc"), "/v1/jobs/abc");
}

TEST(JobLookTest, AnyWaitIsAPlainNumber) {
  EXPECT_EQ(look_target("abc", {.wait_s = 45}), "/v1/jobs/abc?wait_s=45.000");
  EXPECT_EQ(look_target("abc", {.wait_s = 0.00001}), "/v1/jobs/abc?wait_s=0.000");
  EXPECT_EQ(look_target("abc", {.wait_s = 2'000'000}), "/v1/jobs/abc?wait_s=2000000.000");
}

TEST(JobLookTest, WhatWasSeenHasAPhaseOrNone) {
  const json::object queued{{"state", "queued"}, {"phase", nullptr}};
  const json::object thinking{{"state", "running"}, {"phase", "thinking"}};
  EXPECT_EQ(look_target("abc", {.seen = &queued}), "/v1/jobs/abc?seen=queued");
  EXPECT_EQ(look_target("abc", {.wait_s = 1, .seen = &thinking, .told = true}),
            "/v1/jobs/abc?wait_s=1.000&seen=running:thinking&told=true");
}

TEST(JobLookTest, AMoveIsAnotherStateOrPhase) {
  const json::object thinking{{"state", "running"}, {"phase", "thinking"}, {"run_s", 1}};
  json::object later = thinking;
  later["run_s"] = 2;
  EXPECT_FALSE(has_moved(thinking, later));
  later["phase"] = "answering";
  EXPECT_TRUE(has_moved(thinking, later));
  EXPECT_TRUE(has_moved(thinking, json::object{{"state", "queued"}, {"phase", "thinking"}}));
}

}  // namespace
}  // namespace ponder::client
