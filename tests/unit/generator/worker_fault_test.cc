// The table of what ended a worker, row by row, and where the OOM killer leaves its mark.
#include "engine/generator/worker_fault.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/generator/protocol.h"

namespace ponder {
namespace {

namespace fs = std::filesystem;

ProcessEnd exited(int code) {
  return {true, code, 0, false, true};
}
ProcessEnd killed_by(int signal) {
  return {false, 0, signal, false, true};
}

TEST(WorkerFault, IsToldFromHowTheProcessEnded) {
  EXPECT_EQ(fault_of(exited(0), false), WorkerFault::ended);
  EXPECT_EQ(fault_of(exited(1), false), WorkerFault::crashed);
  EXPECT_EQ(fault_of(exited(139), true), WorkerFault::crashed);
  EXPECT_EQ(fault_of(exited(protocol::kExitDeviceLost), false), WorkerFault::device_lost);
  EXPECT_EQ(fault_of(exited(protocol::kExitOutOfMemory), false), WorkerFault::out_of_memory);
  EXPECT_EQ(fault_of(exited(protocol::kExitModelUnusable), false), WorkerFault::unusable);
  for (const int signal : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSYS})
    EXPECT_EQ(fault_of(killed_by(signal), true), WorkerFault::crashed) << signal;
  for (const int signal : {SIGTERM, SIGINT, SIGHUP})
    EXPECT_EQ(fault_of(killed_by(signal), true), WorkerFault::killed) << signal;
  EXPECT_EQ(fault_of(killed_by(SIGKILL), false), WorkerFault::killed);
  EXPECT_EQ(fault_of(killed_by(SIGKILL), true), WorkerFault::out_of_memory);
  ProcessEnd end = killed_by(SIGKILL);
  end.forced = true;
  EXPECT_EQ(fault_of(end, true), WorkerFault::ended);
  end.known = false;
  EXPECT_EQ(fault_of(end, false), WorkerFault::crashed);
}

TEST(WorkerFault, OnlyItsOwnDoingCounts) {
  using enum WorkerFault;
  for (const WorkerFault fault : {crashed, garbled})
    EXPECT_EQ(rule_of(fault).finish, Finish::worker_died);
  for (const WorkerFault fault : {killed, device_lost})
    EXPECT_EQ(rule_of(fault).finish, Finish::worker_killed);
  EXPECT_EQ(rule_of(out_of_memory).finish, Finish::failed);
  EXPECT_EQ(rule_of(ended).finish, Finish::stream_lost);
  for (const WorkerFault fault : {out_of_memory, device_lost})
    EXPECT_FALSE(rule_of(fault).gives_up);
}

TEST(WorkerFault, PausesDoubleUpToTheirBound) {
  const FaultRule& crash = rule_of(WorkerFault::crashed);
  EXPECT_EQ(pause_after(crash, 1, 1), 0);  // a single crash is no loop
  EXPECT_DOUBLE_EQ(pause_after(crash, 2, 1), 0.1);
  EXPECT_DOUBLE_EQ(pause_after(crash, 3, 1), 0.2);
  EXPECT_EQ(pause_after(crash, 1000, 1), 5);
  const FaultRule& device = rule_of(WorkerFault::device_lost);
  EXPECT_EQ(pause_after(device, 1, 1), 1);
  EXPECT_EQ(pause_after(device, 4, 1), 8);
  EXPECT_EQ(pause_after(device, 50, 1), 300);
  EXPECT_EQ(pause_after(device, 1, 0.1), 0.1);
  EXPECT_EQ(pause_after(rule_of(WorkerFault::killed), 50, 1), 1);
}

class OomWatchTest : public testing::Test {
 protected:
  OomWatchTest() {
    std::string name = testing::TempDir() + "/oom-XXXXXX";
    root_ = ::mkdtemp(name.data());
  }
  ~OomWatchTest() override { fs::remove_all(root_); }
  void write(const std::string& file, const std::string& text) {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  fs::path root_;
};

TEST_F(OomWatchTest, ReadsTheWorkersOwnGroup) {
  write("proc/7/cgroup", "0::/user.slice/ponder.service\n");
  const std::string events = "sys/fs/cgroup/user.slice/ponder.service/memory.events";
  write(events, "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n");
  write("sys/fs/cgroup/memory.events", "oom_kill 90\n");
  OomWatch watch(root_);
  watch.begin(7);
  EXPECT_FALSE(watch.came());  // what was before is not ours
  write("sys/fs/cgroup/memory.events", "oom_kill 91\n");
  EXPECT_FALSE(watch.came());
  write(events, "oom 4\noom_kill 3\n");
  EXPECT_TRUE(watch.came());
}

TEST_F(OomWatchTest, KnowsTheOldHierarchyAndContainers) {
  write("proc/7/cgroup", "9:name=systemd:/\n4:memory:/jobs/a\n0::/\n");
  write("sys/fs/cgroup/memory/jobs/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  OomWatch watch(root_);
  watch.begin(7);
  write("sys/fs/cgroup/memory/jobs/a/memory.oom_control",
        "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  EXPECT_TRUE(watch.came());

  write("proc/8/cgroup", "0::/not/visible/in/here\n");
  write("sys/fs/cgroup/memory.events", "oom_kill 5\n");
  watch.begin(8);
  EXPECT_FALSE(watch.came());
  write("sys/fs/cgroup/memory.events", "oom_kill 6\n");
  EXPECT_TRUE(watch.came());
}

TEST_F(OomWatchTest, AKillOfLongAgoBelongsToOthers) {
  write("proc/7/cgroup", "0::/\n");
  write("sys/fs/cgroup/memory.events", "oom_kill 1\n");
  OomWatch watch(root_);
  watch.begin(7);
  write("sys/fs/cgroup/memory.events", "oom_kill 2\n");
  watch.look();
  EXPECT_TRUE(watch.came());  // one look later it may still be the one that is dying now
  watch.look();
  EXPECT_FALSE(watch.came());
}

TEST_F(OomWatchTest, FollowsAProcessToAnotherGroup) {
  write("proc/7/cgroup", "0::/a\n");
  write("sys/fs/cgroup/a/memory.events", "oom_kill 3\n");
  write("sys/fs/cgroup/b/memory.events", "oom_kill 5\n");
  OomWatch watch(root_);
  watch.begin(7);
  write("proc/7/cgroup", "0::/b\n");
  watch.look();
  EXPECT_FALSE(watch.came());
  write("sys/fs/cgroup/b/memory.events", "oom_kill 6\n");
  EXPECT_TRUE(watch.came());
}

TEST_F(OomWatchTest, SilenceOfTheKernelIsNoKill) {
  OomWatch watch(root_);
  watch.begin(7);
  EXPECT_FALSE(watch.came());
}

}  // namespace
}  // namespace ponder
