#include "engine/generator/generator.h"

namespace ponder {

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
