#include "engine/base/thread_latency.h"

#if defined(__linux__)
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdint>

namespace ponder {

#if defined(__linux__) && defined(SYS_sched_setattr) && defined(SYS_sched_getattr)
namespace {
/// struct sched_attr of the first version: older C libraries have none, and Linux's own header
/// cannot stand beside theirs.
struct Attributes {
  std::uint32_t size = sizeof(Attributes);
  std::uint32_t policy = 0;
  std::uint64_t flags = 0;
  std::int32_t nice = 0;
  std::uint32_t priority = 0;
  std::uint64_t runtime_ns = 0;  ///< of a fair task: the length of its slices
  std::uint64_t deadline_ns = 0;
  std::uint64_t period_ns = 0;
};
static_assert(sizeof(Attributes) == 48);
}  // namespace

void wake_this_thread_soon() {
  constexpr std::uint64_t kShortestSliceNs = 100'000;  // that the kernel takes
  Attributes own;
  if (::syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0) return;
  if (own.policy != SCHED_OTHER) return;
  own.runtime_ns = kShortestSliceNs;
  ::syscall(SYS_sched_setattr, 0, &own, 0);
}
#else
void wake_this_thread_soon() {}
#endif

}  // namespace ponder
