#pragma once
// The options that ask and submit share, and the body of POST /v1/jobs made from them.
#include <optional>
#include <string>
#include <vector>

#include "clients/cli/arguments.h"

namespace ponder::cli {

struct JobInput {
  std::vector<std::string> words;
  std::vector<std::string> files;
  std::string context, system, effort, on_limit, schema_file, label, idempotency_key;
  std::string continue_from, mode, workspace;
  std::optional<std::int64_t> max_reasoning_tokens, max_answer_tokens;
  std::optional<double> deadline_s;
  bool force_new = false;
  bool pin = false;
};

void declare_job_input(Arguments& arguments, JobInput& input);
/// The same without the text and --continue-from.
void declare_job_options(Arguments& arguments, JobInput& input);

/// Reads the text (the words, or stdin for "-" or when it is no terminal) and the files, with the
/// caller's rights and bounded in size, and makes the body. Ids in `continue_from` must be resolved
/// already. `kind` is "ask" or "batch". Errors are bad_request.
Result<json::object> job_body(const JobInput& input, const std::string& kind);

/// All of a file or, for "-", of stdin; at most `bytes_max`.
Result<std::string> read_input(const std::string& path, std::size_t bytes_max);

/// Resolves `continue_from`, makes the body and posts it; the job's envelope.
Result<json::object> post_job(Context& context, client::DaemonClient& daemon, JobInput& input,
                              const std::string& kind, client::Interrupt* interrupt);

/// Submits a batch job and prints its id, or the envelope with --json; the exit code.
int queue_job(Context& context, JobInput& input);

}  // namespace ponder::cli
