#pragma once
// Going on from another job's last token, in a new job: `resume` as if it had never been cut,
// `answer_now` with its thinking closed. The new job has the parent's whole request (conversation,
// effort, sampling, seed, schema) and begins with its text and tokens. Pure.
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "jobs/job.h"
#include "jobs/store/job_store.h"
#include "jobs/submission.h"

namespace ponder::jobs {

/// bad_request, gone or not_terminal for what cannot go on, with what works instead. A job that is
/// queued or runs can give an answer now, and then ends for it.
Result<void> refuse_continuation(const JobRow& parent, Mode mode);

struct Continuation {
  Submission submission;
  std::vector<Chunk> text;  ///< what it begins with
  std::string note;         ///< what of the spec or the text is not used
};

/// `request` and `text` (in order, with tokens) are the parent's. A budget that `spec` gives counts
/// from here on. Where it gives none, that which ended the parent is lifted to what the window
/// holds, and the other stays.
Result<Continuation> continue_job(const JobSpec& spec, const JobRow& parent, StoredRequest request,
                                  std::vector<Chunk> text);

}  // namespace ponder::jobs
