#pragma once
// The markers by which a prompt tells the scripted stub what to do:
//   [[stub tokens=N think=N rate=TOKENS_PER_S prefill_s=S text=WORD]]
//   [[stub fault=slow|hang|crash|exit0|invalid_utf8|endless_thinking|loop|out_of_memory|device_lost
//   after=N]]
// Any number of them anywhere in the text, and any fields in each; a later field wins.
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/error.h"

namespace ponder::worker {

enum class StubFault {
  none,
  slow,              ///< from token `after` on, a hundredth of the rate (at most 2 a second)
  hang,              ///< no more tokens after `after`
  crash,             ///< abort()
  exit0,             ///< _exit(0) in the middle of the stream
  invalid_utf8,      ///< token `after` is bytes that are no UTF-8
  endless_thinking,  ///< the thinking never closes
  loop,              ///< the same token for ever
  out_of_memory,     ///< ends failed(out_of_memory)
  device_lost,       ///< ends failed(device_lost); the worker then exits with its code
};

struct StubScript {
  std::int64_t tokens = 40;  ///< of the answer
  std::int64_t think = 20;   ///< of thinking, unless the effort is none
  double rate = 5000;        ///< tokens a second
  double prefill_s = 0;
  std::string word;  ///< every word of the output, or empty
  StubFault fault = StubFault::none;
  std::int64_t after = 0;  ///< output tokens before the fault; 5 when not given
};

/// bad_request names an unknown field, a bad value or a marker that is not closed.
Result<StubScript> parse_stub_script(std::string_view text);

}  // namespace ponder::worker
