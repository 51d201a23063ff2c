// ponder top: the daemon and its jobs, refreshed until Ctrl-C; into a file or pipe and with --json,
// once.
#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cmath>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cli/job_ids.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
constexpr int kJobs = 20;
constexpr const char* kHome = "\x1b[H\x1b[J";  // cursor home, clear from there on

struct View {
  json::object health;
  std::vector<json::object> jobs;  ///< running ones first, then queued ones, then the newest
};

Result<View> look(Context& context, client::DaemonClient& daemon) {
  View view;
  TRY(view.health, get_health(daemon, &context.interrupt()));
  std::vector<json::object>& jobs = view.jobs;
  for (const char* state : {"state=running&", "state=queued&", ""}) {
    TRY(const auto some, list_jobs(daemon, state, kJobs, &context.interrupt()));
    for (const json::object& job : some) {
      const std::string id = text_at(job, "job_id");
      const bool known = std::any_of(jobs.begin(), jobs.end(), [&](const json::object& each) {
        return text_at(each, "job_id") == id;
      });
      if (!known && jobs.size() < kJobs) jobs.push_back(job);
    }
  }
  return view;
}

std::string screen(const View& view) {
  const auto whole = [&](std::string_view path) {
    return static_cast<std::int64_t>(number_at(view.health, path).value_or(0));
  };
  return fmt::format("{}\n{} running, {} asks and {} batch jobs wait\n\n{}",
                     fmt::join(health_lines(view.health), "\n  "), whole("queue.running"),
                     whole("queue.ask"), whole("queue.batch"),
                     job_table(view.jobs, system_clock().wall_ms()));
}

int top(Context& context, std::optional<double> every_s) {
  const double seconds = every_s.value_or(2);
  if (seconds < 0.1 || seconds > 3600) return context.usage("--every-s must be from 0.1 to 3600");
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const bool once = context.json() || !context.terminal().out_is_terminal();
  while (true) {
    const auto view = look(context, *daemon);
    if (context.interrupt().triggered()) return kDone;
    if (!view) return context.failed(view.error());
    if (context.json()) {
      context.document(
          {{"health", view->health}, {"jobs", json::array(view->jobs.begin(), view->jobs.end())}});
      return kDone;
    }
    context.out(once ? screen(*view) : kHome + screen(*view));
    if (once) return kDone;
    pollfd interrupted{context.interrupt().wait_fd(), POLLIN, 0};
    ::poll(&interrupted, 1, static_cast<int>(std::lround(seconds * 1000)));
    if (context.interrupt().triggered()) return kDone;
  }
}
}  // namespace

Action declare_top(Arguments& arguments) {
  auto every_s = std::make_shared<std::optional<double>>();
  arguments.option("--every-s", *every_s, "refresh so often (2)");
  return [every_s](Context& context) { return top(context, *every_s); };
}

}  // namespace ponder::cli
