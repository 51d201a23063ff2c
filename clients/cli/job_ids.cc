#include "clients/cli/job_ids.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "clients/cli/envelope.h"
#include "clients/cpp/job_look.h"
#include "engine/base/clock.h"
#include "engine/base/ids.h"

namespace ponder::cli {
namespace {
// A page is at most 500 jobs; retention keeps far fewer than this many.
constexpr int kPageMax = 500;
constexpr int kLookedAtMax = 20'000;

Result<json::object> object_of(Result<client::Response> response) {
  if (!response) return fail(response.error());
  if (!response->body.is_object())
    return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
                "check PONDER_URL or --home");
  return std::move(response->body.as_object());
}
}  // namespace

Error no_such_job(const std::string& word) {
  return {ErrorCode::job_unknown, fmt::format("no such job: {}", word.empty() ? "\"\"" : word),
          "`ponder ps -a` lists the jobs"};
}

std::string current_workspace() {
  std::error_code ec;
  return std::filesystem::current_path(ec).string();
}

std::string job_target(const std::string& id, const std::string& rest) {
  return "/v1/jobs/" + client::percent_encode(id) + rest;
}

Result<json::object> get_job(client::DaemonClient& daemon, const std::string& id, double wait_s,
                             client::Interrupt* interrupt, const json::object* seen) {
  return object_of(daemon.call("GET", client::look_target(id, {.wait_s = wait_s, .seen = seen}),
                               nullptr, kPromptlyMs + static_cast<int>(wait_s * 1000), interrupt));
}

void mark_as_told(client::DaemonClient& daemon, const std::vector<std::string>& ids,
                  int timeout_ms) {
  const std::int64_t until_ms = system_clock().steady_ms() + timeout_ms;
  for (const std::string& id : ids) {
    const std::int64_t left_ms = until_ms - system_clock().steady_ms();
    if (left_ms <= 0) return;
    (void)daemon.call("GET", client::look_target(id, {.told = true}), nullptr,
                      static_cast<int>(left_ms));
  }
}

Result<std::vector<json::object>> list_jobs(client::DaemonClient& daemon, const std::string& query,
                                            int limit, client::Interrupt* interrupt) {
  std::vector<json::object> jobs;
  std::string before;
  while (static_cast<int>(jobs.size()) < limit) {
    const int page = std::min(kPageMax, limit - static_cast<int>(jobs.size()));
    std::string target = fmt::format("/v1/jobs?{}limit={}", query, page);
    if (!before.empty()) target += "&before=" + client::percent_encode(before);
    TRY(const json::object answer,
        object_of(daemon.call("GET", target, nullptr, kPromptlyMs, interrupt)));
    for (json::object& job : objects_at(answer, "jobs"))
      jobs.push_back(std::move(job));
    const std::string next = text_at(answer, "next_before");
    if (next.empty() || next == before) break;
    before = next;
  }
  return jobs;
}

Result<std::string> resolve_job_id(client::DaemonClient& daemon, const std::string& word,
                                   client::Interrupt* interrupt) {
  if (is_job_id(word)) return word;
  if (word == "@last") {
    const std::string query =
        fmt::format("workspace={}&", client::percent_encode(current_workspace()));
    TRY(const auto newest, list_jobs(daemon, query, 1, interrupt));
    if (newest.empty())
      return fail(ErrorCode::job_unknown, "@last: this directory has no jobs yet",
                  "`ponder ps -a` lists the jobs of all directories");
    return text_at(newest.front(), "job_id");
  }
  const auto in_ids = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (word.empty() || !std::all_of(word.begin(), word.end(), in_ids))
    return fail(no_such_job(word));
  TRY(const auto jobs, list_jobs(daemon, "", kLookedAtMax, interrupt));
  std::vector<std::string> found;
  for (const json::object& job : jobs)
    if (std::string id = text_at(job, "job_id"); id.starts_with(word))
      found.push_back(std::move(id));
  if (found.empty()) return fail(no_such_job(word));
  if (found.size() > 1)
    return fail(ErrorCode::bad_request,
                fmt::format("{} jobs begin with {}, among them {} and {}", found.size(), word,
                            found[0], found[1]),
                "give more of the id");
  return found.front();
}

Result<std::vector<std::string>> resolve_job_ids(client::DaemonClient& daemon,
                                                 const std::vector<std::string>& words,
                                                 client::Interrupt* interrupt) {
  std::vector<std::string> ids;
  for (const std::string& word : words) {
    TRY(std::string id, resolve_job_id(daemon, word, interrupt));
    if (std::find(ids.begin(), ids.end(), id) == ids.end()) ids.push_back(std::move(id));
  }
  return ids;
}

}  // namespace ponder::cli
