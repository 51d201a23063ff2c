// Each limit tried from inside, in a child that has put them in force.
#include "engine/worker/worker_limits.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <new>
#include <thread>

#include "engine/base/sanitized.h"

namespace ponder::worker {
namespace {

/// What `body` returns in a confined child: 0 to 200.
int in_child(const std::function<int()>& body, bool confined = true) {
  const pid_t child = ::fork();
  if (child == 0) {
    if (confined && !confine_process().empty()) ::_exit(250);
    ::_exit(body());
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 255;
}

/// 0 where a call failed with EPERM, else its errno, 200 where it was allowed.
int refusal(long result) {
  if (result >= 0) return 200;
  return errno == EPERM ? 0 : std::min(errno, 199);
}

int open_socket(int family) {
  return refusal(::socket(family, SOCK_STREAM, 0));
}

TEST(WorkerLimits, NoNetworkFromAnyThread) {
  for (const int family : {AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK, AF_ALG})
    EXPECT_EQ(in_child([&] { return open_socket(family); }), 0) << family;
  EXPECT_EQ(in_child([] {
              int answer = -1;
              std::thread([&] { answer = open_socket(AF_INET); }).join();
              return answer;
            }),
            0);
  // The harness can fail: without the filter a socket can be had.
  EXPECT_EQ(in_child([] { return open_socket(AF_INET); }, false), 200);
}

TEST(WorkerLimits, ASocketThatIsThereLeadsNowhereElse) {
  const int own = ::socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(own, 0);
  sockaddr_in there{};
  there.sin_family = AF_INET;
  there.sin_port = htons(9);
  there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(in_child([&] {
              return refusal(::connect(own, reinterpret_cast<sockaddr*>(&there), sizeof there));
            }),
            0);
  ::close(own);
  sockaddr_un named{};
  named.sun_family = AF_UNIX;
  std::strcpy(named.sun_path, "/nowhere/ponderd.sock");
  EXPECT_EQ(in_child([&] {
              const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
              if (fd < 0) return 201;  // device drivers need one for themselves
              return refusal(::connect(fd, reinterpret_cast<sockaddr*>(&named), sizeof named));
            }),
            0);
}

TEST(WorkerLimits, TheSocketOfTheDaemonWorks) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(in_child([&] {
              char byte = 0;
              return ::send(ends[0], "x", 1, 0) == 1 && ::recv(ends[1], &byte, 1, 0) == 1 ? 0 : 1;
            }),
            0);
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(WorkerLimits, NoOtherProgramAndNoOtherProcess) {
  if (!kSanitized) {
    EXPECT_EQ(in_child([] {
                char* argv[] = {const_cast<char*>("/bin/true"), nullptr};
                return refusal(::execv("/bin/true", argv));
              }),
              0);
  }
  EXPECT_EQ(in_child([] {
              char byte = 0;
              iovec mine{&byte, 1}, theirs{&byte, 1};
              return refusal(::process_vm_readv(::getppid(), &mine, 1, &theirs, 1, 0));
            }),
            0);
#if defined(__NR_io_uring_setup)
  EXPECT_EQ(in_child([] { return refusal(::syscall(__NR_io_uring_setup, 1, nullptr)); }), 0);
#endif
}

#if defined(__x86_64__)
TEST(WorkerLimits, TheOtherAbiIsNoWayRound) {
  // socket(AF_INET, SOCK_STREAM, 0) as x32 and, where the kernel has it, as a 32-bit program.
  EXPECT_EQ(in_child([] {
              return refusal(::syscall(0x40000000 + __NR_socket, AF_INET, SOCK_STREAM, 0));
            }),
            0);
  EXPECT_EQ(in_child([] {
              long result = 0;
              constexpr int kSocket32 = 359;
              asm volatile("int $0x80"
                           : "=a"(result)
                           : "a"(kSocket32), "b"(AF_INET), "c"(SOCK_STREAM), "d"(0)
                           : "memory", "r8", "r9", "r10", "r11");
              return result == -EPERM || result == -ENOSYS ? 0 : 1;
            }),
            0);
}
#endif

TEST(WorkerLimits, CoreFilesDescriptorsAndPrivileges) {
  EXPECT_EQ(in_child([] {
              rlimit core{1, 1}, files{};
              if (::getrlimit(RLIMIT_CORE, &core) != 0 || core.rlim_max != 0) return 1;
              if (::getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max > 1024) return 2;
              if (::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1) return 3;
              char text[16] = {};
              const int fd = ::open("/proc/self/oom_score_adj", O_RDONLY | O_CLOEXEC);
              return ::read(fd, text, sizeof text - 1) > 0 && std::strcmp(text, "500\n") == 0 ? 0
                                                                                              : 4;
            }),
            0);
}

TEST(WorkerLimits, MemoryBeyondTheLimitIsRefusedAndMappedFilesDoNotCount) {
  if (kSanitized) GTEST_SKIP() << "the shadow memory of sanitizers is larger than any limit";
  constexpr std::uint64_t kMiB = 1 << 20;
  EXPECT_EQ(in_child([] {
              if (!limit_memory(256 * kMiB, true)) return 1;
              try {
                ::operator delete(::operator new(512 * kMiB));  // a plain new may be left out
                return 2;
              } catch (const std::bad_alloc&) {
              }
              ::operator delete(::operator new(64 * kMiB));
              if (::mmap(nullptr, 512 * kMiB, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED)
                return 3;
              const int file = ::memfd_create("weights", MFD_CLOEXEC);
              if (::ftruncate(file, 1024 * kMiB) != 0 ||
                  ::mmap(nullptr, 1024 * kMiB, PROT_READ, MAP_PRIVATE, file, 0) == MAP_FAILED)
                return 4;
              rlimit more{1024 * kMiB, 1024 * kMiB};
              return ::geteuid() != 0 && ::setrlimit(RLIMIT_DATA, &more) == 0 ? 5 : 0;
            }),
            0);
  EXPECT_EQ(in_child([] {  // first what is there, then what is needed: it can be raised
              if (!limit_memory(64 * kMiB, false) || !limit_memory(1024 * kMiB, true)) return 1;
              ::operator delete(::operator new(512 * kMiB));
              return 0;
            }),
            0);
}

}  // namespace
}  // namespace ponder::worker
