#include "engine/worker/worker_limits.h"

#include <fmt/core.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "engine/base/sanitized.h"

#if defined(__linux__)
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

namespace ponder::worker {
namespace {

/// A device driver opens some hundred files for a few devices.
constexpr rlim_t kMostFiles = 1024;

bool set_limit(decltype(RLIMIT_CORE) resource, rlim_t value) {
  rlimit now{};
  if (::getrlimit(resource, &now) != 0) return false;
  const rlim_t both = std::min(value, now.rlim_max);
  const rlimit wanted{both, both};
  return ::setrlimit(resource, &wanted) == 0;
}

std::string refused(const char* what) {
  return fmt::format("the kernel refuses {}: {}", what, std::strerror(errno));
}

#if defined(__linux__)

#if defined(__x86_64__)
#define PONDER_AUDIT_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define PONDER_AUDIT_ARCH AUDIT_ARCH_AARCH64
#endif

#if defined(PONDER_AUDIT_ARCH)

// A short list of what is refused, and not one of what is allowed: a CUDA driver uses much of the
// kernel, and differently with each version. (Measured with driver and runtime on an H200: cuInit
// fails without a Unix socket that it can bind and listen on, and needs none of these.) Without
// connect and other families of sockets no socket leads anywhere. io_uring_setup is here because a
// ring can open sockets that no filter sees.
constexpr unsigned kRefused[] = {
    __NR_connect,     __NR_process_vm_readv, __NR_process_vm_writev, __NR_bpf,
    __NR_keyctl,      __NR_add_key,          __NR_request_key,       __NR_io_uring_setup,
#if defined(__NR_pidfd_getfd)
    __NR_pidfd_getfd,
#endif
};
// A sanitizer starts its symbolizer when it reports, and looks for leaks by ptrace.
constexpr unsigned kRefusedUnlessSanitized[] = {__NR_execve, __NR_execveat, __NR_ptrace};

constexpr sock_filter load(std::size_t offset) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<unsigned>(offset));
}
constexpr sock_filter answer(unsigned verdict) {
  return BPF_STMT(BPF_RET | BPF_K, verdict);
}

std::vector<sock_filter> filter() {
  constexpr unsigned kRefuse = SECCOMP_RET_ERRNO | (EPERM & SECCOMP_RET_DATA);
  std::vector<sock_filter> program{
      load(offsetof(seccomp_data, arch)),
      // Another ABI numbers its calls otherwise; nothing here uses one.
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PONDER_AUDIT_ARCH, 1, 0),
      answer(kRefuse),
      load(offsetof(seccomp_data, nr)),
  };
#if defined(__x86_64__)
  constexpr unsigned kX32 = 0x40000000;
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, kX32, 0, 1));
  program.push_back(answer(kRefuse));
#endif
  const auto refuse = [&](unsigned call) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1));
    program.push_back(answer(kRefuse));
  };
  for (const unsigned call : kRefused)
    refuse(call);
  if (!kSanitized)
    for (const unsigned call : kRefusedUnlessSanitized)
      refuse(call);
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3));
  program.push_back(load(offsetof(seccomp_data, args[0])));  // the lower half: it is an int
  program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_UNIX, 1, 0));
  program.push_back(answer(kRefuse));
  program.push_back(answer(SECCOMP_RET_ALLOW));
  return program;
}

bool install_filter() {
  std::vector<sock_filter> program = filter();
  const sock_fprog loaded{static_cast<unsigned short>(program.size()), program.data()};
  return ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &loaded) == 0;
}

#else
bool install_filter() {
  errno = ENOSYS;
  return false;
}
#endif

/// Dies before the daemon when memory runs out. Raising it needs no rights.
bool offer_to_the_oom_killer() {
  std::FILE* score = std::fopen("/proc/self/oom_score_adj", "we");
  if (!score) return false;
  const bool written = std::fputs("500", score) >= 0;
  return std::fclose(score) == 0 && written;
}

#endif

}  // namespace

std::vector<std::string> confine_process() {
  std::vector<std::string> problems;
  if (!set_limit(RLIMIT_CORE, 0)) problems.push_back(refused("a limit on core files"));
  if (!set_limit(RLIMIT_NOFILE, kMostFiles)) problems.push_back(refused("a limit on open files"));
#if defined(__linux__)
  if (!offer_to_the_oom_killer()) problems.push_back(refused("an oom_score_adj of 500"));
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
    problems.push_back(refused("to give up new privileges"));
  if (!install_filter())
    problems.push_back(refused("the filter that keeps the engine from the network"));
#endif
  return problems;
}

bool limit_memory(std::uint64_t bytes, bool final) {
  if (kSanitized) return bytes == 0;
  rlimit limit{};
  if (::getrlimit(RLIMIT_DATA, &limit) != 0) return false;
  const rlim_t wanted = bytes == 0 ? limit.rlim_max : static_cast<rlim_t>(bytes);
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  if (final) limit.rlim_max = limit.rlim_cur;
  return ::setrlimit(RLIMIT_DATA, &limit) == 0;
}

}  // namespace ponder::worker
