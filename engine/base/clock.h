#pragma once
// Time comes in as a parameter, so that tests own it. Thread-safe.
#include <cstdint>
#include <string>

namespace ponder {

class Clock {
 public:
  virtual ~Clock() = default;
  /// Milliseconds since the Unix epoch (wall clock; may jump).
  virtual std::int64_t wall_ms() const = 0;
  /// Milliseconds of a clock that never jumps; only differences mean anything.
  virtual std::int64_t steady_ms() const = 0;
};

/// The machine's clocks.
const Clock& system_clock();

/// RFC 3339 in UTC with milliseconds, e.g. "2026-11-29T20:00:00.123Z".
std::string rfc3339(std::int64_t wall_ms);

}  // namespace ponder
