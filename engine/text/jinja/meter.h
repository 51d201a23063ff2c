#pragma once
// What a render may spend. A template is a program from a stranger: every step, every byte worked
// on and every byte held is counted, so that no template runs longer than about 0.1 s or holds
// more than its share, whatever it does.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <tl/expected.hpp>

#include "engine/base/error.h"

namespace ponder::text::jinja {

/// Why a template cannot be compiled or rendered; `line` is 1-based, 0 when unknown.
struct FaultInfo {
  std::string message;
  int line = 0;
};
using Fault = std::unique_ptr<FaultInfo>;
/// Small, because it is returned from every step of the interpreter.
template <class T>
using Outcome = tl::expected<T, Fault>;

inline tl::unexpected<Fault> fault(std::string message, int line = 0) {
  return tl::unexpected<Fault>(std::make_unique<FaultInfo>(FaultInfo{std::move(message), line}));
}

struct Limits {
  std::int64_t steps = 1'000'000;
  std::int64_t output_bytes = std::int64_t{16} << 20;   // of the prompt and of any one string
  std::int64_t held_bytes = std::int64_t{64} << 20;     // in values at one time
  std::int64_t worked_bytes = std::int64_t{128} << 20;  // copied or read in one render
  int depth = 64;                                       // nesting of the source; of macro calls
  int levels = 400;                                     // nesting of evaluation altogether
  std::int64_t range = 100'000;                         // numbers of one range(), as in Jinja2
};

class Meter {
 public:
  explicit Meter(const Limits& limits = {}) : limits_(limits) {}
  Meter(const Meter&) = delete;
  Meter& operator=(const Meter&) = delete;

  const Limits& limits() const { return limits_; }

  Outcome<void> step(std::int64_t n = 1) {
    steps_ += n;
    if (steps_ > limits_.steps) return fault("the template takes more than 1,000,000 steps");
    return {};
  }
  /// Bytes copied, about 0.3 ns each; work that costs more a byte counts several times: 4 for
  /// reading byte by byte, 8 to 16 for reading or mapping characters.
  Outcome<void> work(std::size_t bytes) {
    worked_ += static_cast<std::int64_t>(bytes);
    if (worked_ > limits_.worked_bytes)
      return fault("the template copies more than 128 MiB of text");
    return {};
  }
  /// Refuses a string that would be too long; call before building it.
  Outcome<void> length(std::size_t bytes) {
    if (static_cast<std::int64_t>(bytes) > limits_.output_bytes)
      return fault("the template makes a text of more than 16 MiB");
    return work(bytes);
  }
  Outcome<void> hold(std::size_t bytes) {
    held_ += static_cast<std::int64_t>(bytes);
    if (held_ > limits_.held_bytes) return fault("the template holds more than 64 MiB of values");
    return {};
  }
  void release(std::size_t bytes) { held_ -= static_cast<std::int64_t>(bytes); }

 private:
  Limits limits_;
  std::int64_t steps_ = 0;
  std::int64_t worked_ = 0;
  std::int64_t held_ = 0;
};

}  // namespace ponder::text::jinja
