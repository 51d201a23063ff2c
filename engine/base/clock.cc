#include "engine/base/clock.h"

#include <fmt/core.h>
#include <time.h>

#include <chrono>

namespace ponder {
namespace {
class SystemClock final : public Clock {
 public:
  std::int64_t wall_ms() const override {
    using namespace std::chrono;
    return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  }
  std::int64_t steady_ms() const override {
    using namespace std::chrono;
    return duration_cast<milliseconds>(steady_clock::now().time_since_epoch()).count();
  }
};
}  // namespace

const Clock& system_clock() {
  static const SystemClock clock;
  return clock;
}

std::string rfc3339(std::int64_t wall_ms) {
  std::int64_t ms = wall_ms % 1000;
  std::int64_t s = wall_ms / 1000;
  if (ms < 0) ms += 1000, s -= 1;
  const time_t t = static_cast<time_t>(s);
  struct tm utc {};
  gmtime_r(&t, &utc);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", utc.tm_year + 1900,
                     utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec, ms);
}
}  // namespace ponder
