#pragma once
// Ids as people type them: whole, a unique prefix, or @last.
#include <string>
#include <vector>

#include "clients/cli/context.h"

namespace ponder::cli {

/// This directory as jobs name their workspace.
std::string current_workspace();

/// What is said of a word that means no job.
Error no_such_job(const std::string& word);

/// The id that `word` means: a whole id is taken as it is, without asking; a prefix is looked up
/// among all jobs; @last is the newest job of the current directory. job_unknown if there is none,
/// bad_request naming some candidates if there are several.
Result<std::string> resolve_job_id(client::DaemonClient& daemon, const std::string& word,
                                   client::Interrupt* interrupt);
/// Each of `words`, without repetition.
Result<std::vector<std::string>> resolve_job_ids(client::DaemonClient& daemon,
                                                 const std::vector<std::string>& words,
                                                 client::Interrupt* interrupt);

/// "/v1/jobs/ID" and what follows it.
std::string job_target(const std::string& id, const std::string& rest = {});

/// GET of a job's envelope; `wait_s` > 0 waits for a change of its state or phase, from what was
/// `seen` if that is given.
Result<json::object> get_job(client::DaemonClient& daemon, const std::string& id, double wait_s,
                             client::Interrupt* interrupt, const json::object* seen = nullptr);

// What mark_as_told() may take where somebody counts the seconds, and where somebody pressed
// Ctrl-C.
constexpr int kTimedOutMs = 500;
constexpr int kInterruptedMs = 2'000;
/// The caller is told these ids and may come back for the jobs, so the daemon keeps those that are
/// asks as it keeps submitted ones. Best effort within `timeout_ms` in all: neither Ctrl-C nor a
/// spent wait must hang.
void mark_as_told(client::DaemonClient& daemon, const std::vector<std::string>& ids,
                  int timeout_ms);

/// Up to `limit` jobs, newest first; `query` is "state=queued&" or the like.
Result<std::vector<json::object>> list_jobs(client::DaemonClient& daemon, const std::string& query,
                                            int limit, client::Interrupt* interrupt);

}  // namespace ponder::cli
