#pragma once
// A job as a value: what was asked, where it stands, how it ended. The closed vocabulary of
// states and reasons is here and nowhere else. Plain values, no thread of their own.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/generator/generator.h"

namespace ponder::jobs {

enum class State {
  queued,
  running,
  completed,
  incomplete,
  failed,
  cancelled,
  interrupted,
  expired
};
/// The table in job.cc says which state each explains.
enum class Reason {
  none,
  output_limit,
  reasoning_exhausted,
  stream_lost,
  deadline,
  repetition,
  schema_invalid,
  stalled,
  engine_error,
  out_of_memory,
  storage,
  bad_request,
  model_missing,
  poison,
  count_
};
enum class Lane { ask, batch };
enum class Mode { follow_up, resume, answer_now };
using ponder::OnLimit;

std::string_view to_string(State state);
std::string_view to_string(Reason reason);  ///< "" for none
std::string_view to_string(Lane lane);
std::optional<State> state_from(std::string_view word);
std::optional<Reason> reason_from(std::string_view word);
/// completed, incomplete, failed, cancelled, interrupted (and expired): never changes again.
bool is_terminal(State state);
/// The state that a reason explains; nothing for none.
std::optional<State> state_of(Reason reason);
/// Whether a job may be in this state with this reason; the database enforces the same.
bool is_legal(State state, Reason reason);
/// The table of legal moves; the database enforces the same with CHECK constraints and triggers.
bool is_legal(State from, State to);

struct FileText {
  std::string name;  ///< a label, never a path to open
  std::string text;
};

/// What a caller asks for, parsed from the body of POST /v1/jobs and checked.
struct JobSpec {
  Lane kind = Lane::batch;
  // Exactly one of task and messages.
  std::string task;
  std::vector<Message> messages;
  std::string context;
  std::vector<FileText> files;
  std::string system;
  std::optional<Effort>
      effort;  ///< unset: medium for asks, xhigh for batch, the parent's if continued
  SamplingParams sampling;
  Budgets budgets;
  std::optional<double> deadline_s;  ///< running time
  OnLimit on_limit = OnLimit::stop;
  std::optional<json::value> schema;
  std::string label;
  std::string workspace;
  std::string idempotency_key;
  std::string continue_from;
  Mode mode = Mode::follow_up;
  bool force_new = false;
  bool pin = false;
};

/// Reads the body of POST /v1/jobs. Unknown fields are ignored; a bad one is bad_request with its
/// name in `param`. Bounds: label 200 characters, workspace 4,096, key 200, 64 files.
Result<JobSpec> parse_job_spec(const json::object& body);

}  // namespace ponder::jobs
