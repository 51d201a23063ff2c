#pragma once
// From a checked JobSpec to what is stored: defaults filled in, the conversation built, the seed
// chosen, the body hashed. Pure but for the random seed.
#include <optional>
#include <string>

#include "engine/base/error.h"
#include "engine/generator/generator.h"
#include "jobs/job.h"
#include "jobs/prompt.h"
#include "jobs/running_job.h"

namespace ponder::jobs {

using Carried = Resumed;  ///< always has its tokens

/// What the table `request` holds, as text, and what is generated.
struct StoredRequest {
  GenerationRequest generation;
  json::value schema;       ///< compiled; null: none
  Carried carried = {};     ///< of the job's text: what it began with, of another job
  bool answer_now = false;  ///< its thinking is closed
  /// The thinking that it began with was closed from outside.
  bool forced_answer = false;
};
std::string encode_request(const StoredRequest& request);
Result<StoredRequest> decode_request(std::string_view text);

struct ParentJob {
  std::string id;
  std::string effort;  ///< as requested
  ParentTurn turn;
};

struct Submission {
  StoredRequest request;
  std::string effort;  ///< the word or number that is asked of the generator
};

/// SHA-256 of what the caller asked for, whatever the order of keys; without the key, force_new.
std::string body_hash(const JobSpec& spec);

/// bad_request for what does not go together.
Result<Submission> prepare(const JobSpec& spec, const std::optional<ParentJob>& parent);

/// A spec with all that can be made of it without the queue, for the thread of the one who submits:
/// with megabytes of text it takes long enough to keep every other call waiting.
struct ReadySpec {
  JobSpec spec;
  std::string hash;                         ///< body_hash()
  std::optional<Result<Submission>> alone;  ///< prepare(), where there is no parent
  std::string request = {};                 ///< of a good one, encode_request()
};
ReadySpec make_ready(JobSpec spec);

}  // namespace ponder::jobs
