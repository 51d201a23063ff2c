#include "clients/cpp/instance_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/client/program_run.h"

namespace ponder::client {
namespace {
using client_test::TempDir;
using client_test::write_file;

TEST(InstanceLockTest, NoFileIsNotHeld) {
  const TempDir dir;
  EXPECT_FALSE(read_instance_lock(dir / "ponderd.lock").held);
}

TEST(InstanceLockTest, AFileThatNobodyLocksIsNotHeldWhateverItSays) {
  const TempDir dir;
  for (const std::string& text :
       {std::string("1\n"), std::to_string(::getpid()), std::string("x")}) {
    write_file(dir / "ponderd.lock", text);
    EXPECT_FALSE(read_instance_lock(dir / "ponderd.lock").held) << text;
  }
}

TEST(InstanceLockTest, NamesTheHolderAndLeavesTheLockAlone) {
  const TempDir dir;
  const std::string file = dir / "ponderd.lock";
  write_file(file, std::to_string(::getpid()) + "\n");
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  const LockHolder holder = read_instance_lock(file);
  EXPECT_TRUE(holder.held);
  EXPECT_EQ(holder.pid, ::getpid());
  ::close(fd);
  EXPECT_FALSE(read_instance_lock(file).held);
}

TEST(InstanceLockTest, APidThatDoesNotHoldTheLockIsNotGiven) {
  const TempDir dir;
  const std::string file = dir / "ponderd.lock";
  const pid_t innocent = ::fork();  // lives, and has nothing to do with the lock
  if (innocent == 0) {
    ::pause();
    ::_exit(0);
  }
  write_file(file, std::to_string(innocent));
  const int fd = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_EQ(::flock(fd, LOCK_EX | LOCK_NB), 0);
  EXPECT_EQ(read_instance_lock(file).pid, 0);
  ::close(fd);
  ::kill(innocent, SIGKILL);
  ::waitpid(innocent, nullptr, 0);
}

TEST(InstanceLockTest, ALinkIsNotFollowed) {
  const TempDir dir;
  ASSERT_EQ(::symlink("/etc/passwd", (dir / "ponderd.lock").c_str()), 0);
  EXPECT_FALSE(read_instance_lock(dir / "ponderd.lock").held);
}

}  // namespace
}  // namespace ponder::client
