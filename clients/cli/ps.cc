// ponder ps: what waits and runs; with -a also what has ended. Newest first.
#include <algorithm>
#include <filesystem>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
struct Options {
  bool all = false;
  std::string state;
  std::string label;
  std::string workspace;
  std::optional<std::int64_t> limit;
};

Result<std::vector<json::object>> chosen_jobs(Context& context, client::DaemonClient& daemon,
                                              const Options& options) {
  const int limit = static_cast<int>(options.limit.value_or(100));
  std::string query;
  if (!options.label.empty()) query += "label=" + client::percent_encode(options.label) + "&";
  if (!options.workspace.empty()) {
    std::error_code ec;
    const auto dir = std::filesystem::absolute(options.workspace, ec).lexically_normal();
    query += "workspace=" + client::percent_encode(dir.string()) + "&";
  }
  std::vector<std::string> states{"queued", "running"};
  if (!options.state.empty())
    states = {options.state};
  else if (options.all)
    states = {""};
  std::vector<json::object> jobs;
  for (const std::string& state : states) {
    const std::string filter =
        state.empty() ? query : query + "state=" + client::percent_encode(state) + "&";
    TRY(auto some, list_jobs(daemon, filter, limit, &context.interrupt()));
    // A job that began to run between the two questions is in both answers.
    for (json::object& job : some) {
      const std::string id = text_at(job, "job_id");
      std::erase_if(jobs, [&id](const json::object& j) { return text_at(j, "job_id") == id; });
      jobs.push_back(std::move(job));
    }
  }
  std::stable_sort(jobs.begin(), jobs.end(), [](const json::object& a, const json::object& b) {
    return text_at(a, "job_id") > text_at(b, "job_id");  // ids sort by creation
  });
  if (static_cast<int>(jobs.size()) > limit) jobs.resize(static_cast<std::size_t>(limit));
  return jobs;
}

int ps(Context& context, const Options& options) {
  constexpr std::string_view known[] = {"queued", "running",   "completed",   "incomplete",
                                        "failed", "cancelled", "interrupted", "expired"};
  if (!options.state.empty() &&
      std::find(std::begin(known), std::end(known), options.state) == std::end(known))
    return context.usage(
        "--state must be queued, running, completed, incomplete, failed, "
        "cancelled, interrupted or expired");
  if (options.limit && (*options.limit < 1 || *options.limit > 10'000))
    return context.usage("--limit must be from 1 to 10000");
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto jobs = chosen_jobs(context, *daemon, options);
  if (!jobs) return context.failed(jobs.error());
  if (context.json()) {
    context.document({{"jobs", json::array(jobs->begin(), jobs->end())}});
    return kDone;
  }
  context.out(job_table(*jobs, system_clock().wall_ms()));
  return kDone;
}
}  // namespace

Action declare_ps(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.flag("-a,--all", options->all,
                 "also jobs that have ended, not those that were pruned (-s expired)");
  arguments.option("-s,--state", options->state,
                   "only jobs in this state; expired: those whose texts were pruned");
  arguments.option("-l,--label", options->label, "only jobs with this label");
  arguments.option("--workspace", options->workspace, "only jobs of this directory");
  arguments.option("-n,--limit", options->limit, "at most this many (100)");
  return [options](Context& context) { return ps(context, *options); };
}

}  // namespace ponder::cli
