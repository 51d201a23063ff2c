#pragma once
// What the end of a generation means for its job. Pure.
#include "engine/base/json.h"
#include "engine/generator/generator.h"
#include "jobs/job_text.h"
#include "jobs/store/job_store.h"

namespace ponder::jobs {

/// Among a row's facts, never shown: it went back to the queue because memory ran out.
inline constexpr const char* kRanOutOfMemory = "ran_out_of_memory";

/// Why the queue itself asked a generation to end.
/// `yield`: it makes room for an ask, and goes on afterwards.
enum class Intent { none, user_cancel, deadline, stop, yield };

/// How much memory a generation takes that ended as no_memory. More than there is where the system
/// itself had none: such a one is started alone.
std::uint64_t bytes_needed(const Ended& ended);

struct Ending {
  Finish finish = Finish::failed;
  std::optional<Error> error;
  Intent intent = Intent::none;
};

/// State queued: it goes back and is generated again. `schema` null: none was given.
/// `max_attempts`: deaths of the engine that one job may cause.
Leave judge(const JobRow& row, const Ending& ending, const JobText& text, const json::value& schema,
            int max_attempts);

}  // namespace ponder::jobs
