// A wall clock that jumps when a harness says so, for one program and its children and without any
// right: preload this library and name a file of three integers in FAKETIME_OFFSETS (a name that
// the daemon hands on to its worker).
//
//   LD_PRELOAD=build/release/tests/libplanted_clock.so FAKETIME_OFFSETS=/tmp/clock ponderd ...
//
// They have 64 bits in the machine's order: what CLOCK_REALTIME is ahead of the machine's in ms,
// the same of CLOCK_BOOTTIME (a machine that was suspended: both, by the same), and whether a bug
// is planted. The file is mapped, so writing it is the jump. CLOCK_MONOTONIC stays as it is, and a
// wait by it too; a wait until a point of the wall clock ends when the moved clock is there, as the
// kernel does it.
//
// The planted bug, wall_timers: what is asked of CLOCK_MONOTONIC is told from the wall clock, as in
// a program that times by it.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>

namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kSlice = 20'000'000;  // how late a jump is noticed by a wait, ns

struct Offsets {
  std::atomic<std::int64_t> wall_ms{0};
  std::atomic<std::int64_t> boot_ms{0};
  std::atomic<std::int64_t> wall_timers{0};
};
static_assert(sizeof(Offsets) == 24);

template <class Function>
Function* real(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

const Offsets& offsets() {
  static const Offsets none;
  static const Offsets* const mapped = []() -> const Offsets* {
    const char* path = std::getenv("FAKETIME_OFFSETS");
    const int fd = path ? ::open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return &none;
    void* at = ::mmap(nullptr, sizeof(Offsets), PROT_READ, MAP_SHARED, fd, 0);
    ::close(fd);
    return at == MAP_FAILED ? &none : static_cast<const Offsets*>(at);
  }();
  return *mapped;
}

bool wall_timers() {
  return offsets().wall_timers != 0;
}

/// How far this clock is ahead of the machine's, ns.
std::int64_t ahead(clockid_t clock) {
  switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
      return offsets().wall_ms * 1'000'000;
    case CLOCK_BOOTTIME:
      return offsets().boot_ms * 1'000'000;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_COARSE:
      return wall_timers() ? offsets().wall_ms * 1'000'000 : 0;
    default:
      return 0;
  }
}

std::int64_t ns_of(const timespec& t) {
  return t.tv_sec * kSecond + t.tv_nsec;
}
timespec timespec_of(std::int64_t ns) {
  return {ns / kSecond, ns % kSecond};
}

int machine_time(clockid_t clock, timespec* t) {
  static const auto get = real<decltype(clock_gettime)>("clock_gettime");
  return get(clock, t);
}

std::int64_t now(clockid_t clock) {
  timespec t{};
  machine_time(clock, &t);
  return ns_of(t) + ahead(clock);
}

/// Waits until `clock` shows `until`, in slices of the machine's clock so that a jump is heard of.
/// `wait(end)` waits for something until `end` of CLOCK_MONOTONIC, at most; what it returns is
/// returned, but for a slice that ran out: then 0, a wake-up for nothing, which every such wait
/// allows.
template <class Wait>
int wait_until(clockid_t clock, const timespec* until, Wait wait) {
  if (clock == CLOCK_MONOTONIC && !wall_timers()) return wait(until);
  const std::int64_t left = ns_of(*until) - now(clock);
  const bool last = left <= kSlice;
  timespec machine{};
  machine_time(CLOCK_MONOTONIC, &machine);
  const timespec end = timespec_of(ns_of(machine) + (last ? (left > 0 ? left : 0) : kSlice));
  const int code = wait(&end);
  return code == ETIMEDOUT && !last ? 0 : code;
}
}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* t) {
  const int code = machine_time(clock, t);
  if (code == 0) *t = timespec_of(ns_of(*t) + ahead(clock));
  return code;
}

time_t time(time_t* out) {
  const time_t seconds = now(CLOCK_REALTIME) / kSecond;
  if (out) *out = seconds;
  return seconds;
}

int gettimeofday(timeval* __restrict t, void* __restrict) {
  const std::int64_t ns = now(CLOCK_REALTIME);
  *t = {ns / kSecond, ns % kSecond / 1000};
  return 0;
}

int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                           const timespec* until) {
  static const auto wait = real<decltype(pthread_cond_clockwait)>("pthread_cond_clockwait");
  return wait_until(clock, until, [&](const timespec* end) {
    return wait(condition, mutex, CLOCK_MONOTONIC, end);
  });
}

int pthread_cond_timedwait(pthread_cond_t* __restrict condition, pthread_mutex_t* __restrict mutex,
                           const timespec* __restrict until) {
  return pthread_cond_clockwait(condition, mutex, CLOCK_REALTIME, until);
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* request, timespec* remain) {
  static const auto sleep = real<decltype(clock_nanosleep)>("clock_nanosleep");
  if ((flags & TIMER_ABSTIME) == 0) return sleep(clock, flags, request, remain);
  while (now(clock) < ns_of(*request)) {
    const int code = wait_until(clock, request, [&](const timespec* end) {
      return sleep(CLOCK_MONOTONIC, TIMER_ABSTIME, end, nullptr);
    });
    if (code != 0) return code;
  }
  return 0;
}
}
