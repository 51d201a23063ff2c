// ponder status: one screen about the daemon, or about one job.
#include <fmt/format.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cli/job_ids.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
constexpr int kLatestJobs = 5;

struct Options {
  std::vector<std::string> words;
  std::optional<double> wait_s;
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

int daemon_status(Context& context, client::DaemonClient& daemon) {
  const auto health = get_health(daemon, &context.interrupt());
  if (!health) return context.failed(health.error());
  const auto jobs = list_jobs(daemon, "", kLatestJobs, &context.interrupt());
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

int job_status(Context& context, client::DaemonClient& daemon, const Options& options) {
  const auto id = resolve_job_id(daemon, options.words.front(), &context.interrupt());
  if (!id) return context.failed(id.error());
  const auto job = get_job(daemon, *id, options.wait_s.value_or(0), &context.interrupt());
  if (!job) return context.failed(job.error());
  if (context.json())
    context.document(*job);
  else
    context.out(job_screen(context.with_own_next(*job), system_clock().wall_ms()));
  return exit_code_of_state(text_at(*job, "state"));
}

int status(Context& context, const Options& options) {
  if (options.wait_s && (*options.wait_s < 0 || *options.wait_s > 86'400))
    return context.usage("--wait-s must be from 0 to 86400");
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  return options.words.empty() ? daemon_status(context, *daemon)
                               : job_status(context, *daemon, options);
}
}  // namespace

Action declare_status(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words("ID", options->words, 0, 1, "a job; the daemon if absent");
  arguments.option("--wait-s", options->wait_s,
                   "wait this long for a change of the job's state or phase");
  return [options](Context& context) { return status(context, *options); };
}

}  // namespace ponder::cli
