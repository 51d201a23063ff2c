// ponder status: one screen about the daemon, or about one job; a table of several jobs.
#include <fmt/format.h>

#include <algorithm>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cli/job_ids.h"
#include "clients/cpp/job_look.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
constexpr int kLatestJobs = 5;

struct Options {
  std::vector<std::string> words;
  std::vector<std::string> job_ids;
  std::optional<double> wait_s;
  bool all_workspaces = false;
};

std::string daemon_screen(const json::object& health) {
  std::string out;
  const auto row = [&out](std::string_view name, const std::string& value) {
    out += fmt::format("{:<8} {}\n", name, value);
  };
  const auto count = [&health](std::string_view path) {
    return number_at(health, path).value_or(0);
  };
  row("daemon", fmt::format("{}", fmt::join(health_lines(health), "\n         ")));
  if (const std::string demo = demo_warning(health); !demo.empty()) row("", demo);
  if (const auto pid = number_at(health, "engine.pid")) {
    std::string engine = fmt::format(
        "process {:.0f} on {}, up {}, {:.0f} restarts", *pid, text_at(health, "engine.device"),
        duration_in_words(count("engine.uptime_s")), count("engine.restarts"));
    if (const std::string last = text_at(health, "engine.last_error"); !last.empty())
      engine += ", last error: " + last;
    row("engine", engine);
  }
  if (number_at(health, "queue.running"))
    row("queue", fmt::format("{:.0f} running, {:.0f} asks and {:.0f} batch jobs wait, limit {:.0f}",
                             count("queue.running"), count("queue.ask"), count("queue.batch"),
                             count("queue.limit")));
  if (const auto free = number_at(health, "store.free_bytes"))
    row("store", fmt::format("{}, {} free", true_at(health, "store.ok") ? "ok" : "refuses to write",
                             bytes_in_words(*free)));
  const std::string addresses = words_at(health, "tcp.addresses");
  const std::string no_tcp = text_at(health, "tcp.reason");
  if (!addresses.empty() || !no_tcp.empty())
    row("tcp", addresses + (addresses.empty() || no_tcp.empty() ? "" : "; ") + no_tcp);
  if (const std::string version = text_at(health, "version"); !version.empty())
    row("version", fmt::format("{}, up {}", version, duration_in_words(count("uptime_s"))));
  return out;
}

bool is_live(const json::object& job) {
  return !is_final_state(text_at(job, "state"));
}

/// Who has waited for these and leaves them comes back for them.
void tell_of(client::DaemonClient& daemon, const std::vector<json::object>& jobs) {
  std::vector<std::string> live;
  for (const json::object& job : jobs)
    if (is_live(job)) live.push_back(text_at(job, "job_id"));
  mark_as_told(daemon, live, kTimedOutMs);
}

int job_status(Context& context, client::DaemonClient& daemon, const Options& options) {
  const auto id = resolve_job_id(daemon, options.words.front(), &context.interrupt());
  if (!id) return context.failed(id.error());
  const auto job = get_job(daemon, *id, options.wait_s.value_or(0), &context.interrupt());
  if (!job) return context.failed(job.error());
  if (options.wait_s) tell_of(daemon, {*job});
  if (context.json())
    context.document(*job);
  else
    context.out(job_screen(context.with_own_next(*job), system_clock().wall_ms()));
  return exit_code_of_state(text_at(*job, "state"));
}

/// Looks at the jobs until one of them has moved or the wait is over. One request waits, for up to
/// a second, on the first job that can still move; the others are looked at in between.
Result<void> wait_for_a_move(client::DaemonClient& daemon, std::vector<json::object>& jobs,
                             double wait_s, client::Interrupt& interrupt) {
  const std::int64_t until_ms =
      system_clock().steady_ms() + static_cast<std::int64_t>(wait_s * 1000);
  for (bool moved = false; !moved;) {
    bool waited = false;
    for (json::object& job : jobs) {
      const auto left_ms = static_cast<double>(until_ms - system_clock().steady_ms());
      if (left_ms <= 0) return {};
      if (!is_live(job)) continue;
      const double this_s = waited ? 0 : std::min(left_ms / 1000, 1.0);
      waited = true;
      TRY(json::object now, get_job(daemon, text_at(job, "job_id"), this_s, &interrupt, &job));
      moved = moved || client::has_moved(job, now);
      job = std::move(now);
    }
    if (!waited) return {};
  }
  return {};
}

int daemon_status(Context& context, client::DaemonClient& daemon, const Options& options) {
  const std::string query = options.all_workspaces
                                ? std::string()
                                : "workspace=" + client::percent_encode(current_workspace()) + "&";
  auto jobs = list_jobs(daemon, query, kLatestJobs, &context.interrupt());
  if (jobs && options.wait_s) {
    const auto waited = wait_for_a_move(daemon, *jobs, *options.wait_s, context.interrupt());
    if (!waited) return context.failed(waited.error());
    tell_of(daemon, *jobs);
  }
  const auto health = get_health(daemon, &context.interrupt());
  if (!health) return context.failed(health.error());
  const bool have_jobs = jobs && !jobs->empty();
  if (context.json()) {
    json::array list;
    if (have_jobs) list = json::array(jobs->begin(), jobs->end());
    context.document({{"health", *health}, {"jobs", list}});
  } else {
    context.out(daemon_screen(*health));
    if (have_jobs) context.out("\n" + job_table(*jobs, system_clock().wall_ms()));
  }
  return exit_code_of_health(*health, false);
}

int several_jobs(Context& context, client::DaemonClient& daemon, const Options& options) {
  const auto ids = resolve_job_ids(daemon, options.job_ids, &context.interrupt());
  if (!ids) return context.failed(ids.error());
  std::vector<json::object> jobs;
  for (const std::string& id : *ids) {
    auto job = get_job(daemon, id, 0, &context.interrupt());
    if (!job) return context.failed(job.error());
    jobs.push_back(std::move(*job));
  }
  if (options.wait_s) {
    const auto waited = wait_for_a_move(daemon, jobs, *options.wait_s, context.interrupt());
    if (!waited) return context.failed(waited.error());
    tell_of(daemon, jobs);
  }
  int exit_code = kDone;
  for (const json::object& job : jobs)
    exit_code = worse(exit_code, exit_code_of_state(text_at(job, "state")));
  if (context.json())
    context.jobs_document(json::array(jobs.begin(), jobs.end()), jobs.size());
  else
    context.out(job_table(jobs, system_clock().wall_ms()));
  return exit_code;
}

int status(Context& context, const Options& options) {
  if (!options.words.empty() && !options.job_ids.empty())
    return context.usage("give an ID or --job-ids, not both");
  if (options.wait_s && (*options.wait_s < 0 || *options.wait_s > 86'400))
    return context.usage("--wait-s must be from 0 to 86400");
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  if (!options.job_ids.empty()) return several_jobs(context, *daemon, options);
  if (!options.words.empty()) return job_status(context, *daemon, options);
  return daemon_status(context, *daemon, options);
}
}  // namespace

Action declare_status(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words("ID", options->words, 0, 1, "a job; the daemon if absent");
  arguments.option("--job-ids", options->job_ids, "a job, for several in a table (repeatable)");
  arguments.option("--wait-s", options->wait_s,
                   "wait this long for a change of a job's state or phase");
  arguments.flag("--all-workspaces", options->all_workspaces,
                 "with the daemon, the latest jobs of all directories, not only of this one");
  return [options](Context& context) { return status(context, *options); };
}

}  // namespace ponder::cli
