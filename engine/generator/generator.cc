#include "engine/generator/generator.h"

namespace ponder {

std::uint64_t ContextMemory::need(std::int64_t tokens) const {
  // One page more: what is written into a shared one goes into a copy of it.
  const auto pages = static_cast<std::uint64_t>((tokens + page_tokens - 1) / page_tokens + 1);
  return sequence_bytes + pages * page_bytes;
}

std::string_view to_string(Finish finish) {
  switch (finish) {
    case Finish::end_token:
      return "end_token";
    case Finish::stop_string:
      return "stop_string";
    case Finish::output_limit:
      return "output_limit";
    case Finish::reasoning_exhausted:
      return "reasoning_exhausted";
    case Finish::repetition:
      return "repetition";
    case Finish::stream_lost:
      return "stream_lost";
    case Finish::stalled:
      return "stalled";
    case Finish::cancelled:
      return "cancelled";
    case Finish::no_memory:
      return "no_memory";
    case Finish::worker_died:
      return "worker_died";
    case Finish::worker_killed:
      return "worker_killed";
    case Finish::failed:
      return "failed";
  }
  return "failed";
}

}  // namespace ponder
