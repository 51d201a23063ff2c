// ponder wait: prints "ID STATE" as jobs end. Never cancels anything.
#include <fmt/core.h>
#include <poll.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
using std::chrono::steady_clock;
constexpr std::size_t kJobsMax = 200;                 // a thread and a connection each
constexpr double kPollS = 25;                         // one request's wait
constexpr auto kPatience = std::chrono::seconds(30);  // a daemon that is being restarted
constexpr int kFailurePauseMs = 300;

struct Options {
  std::vector<std::string> words;
  bool any = false;
  std::optional<double> wait_s;
};

/// Waits for each job on a thread of its own. `interrupt` ends them all.
class Waiters {
 public:
  Waiters(client::DaemonClient& daemon, client::Interrupt& interrupt)
      : daemon_(daemon), interrupt_(interrupt) {}
  ~Waiters() {
    for (std::thread& thread : threads_)
      thread.join();
  }

  void start(const std::vector<std::string>& ids) {
    for (const std::string& id : ids)
      threads_.emplace_back([this, id] {
        auto ended = wait_for(id);
        const std::lock_guard lock(mutex_);
        ended_.push_back(std::move(ended));
        changed_.notify_all();
      });
  }

  /// The next that ended (or failed), or nullopt at `until`.
  std::optional<Result<json::object>> next(std::optional<steady_clock::time_point> until) {
    std::unique_lock lock(mutex_);
    const auto has_one = [this] { return taken_ < ended_.size(); };
    if (!until)
      changed_.wait(lock, has_one);
    else if (!changed_.wait_until(lock, *until, has_one))
      return std::nullopt;
    return ended_[taken_++];
  }

 private:
  Result<json::object> wait_for(const std::string& id) {
    for (auto heard = steady_clock::now();;) {
      auto job = get_job(daemon_, id, kPollS, &interrupt_);
      if (job && is_final_state(text_at(*job, "state"))) return job;
      if (job) {
        heard = steady_clock::now();
        continue;
      }
      const ErrorCode code = job.error().code;
      const bool passing = code == ErrorCode::unreachable || code == ErrorCode::stream_lost ||
                           code == ErrorCode::timed_out || code == ErrorCode::loading;
      if (!passing || steady_clock::now() - heard > kPatience) return job;
      pollfd interrupted{interrupt_.wait_fd(), POLLIN, 0};
      ::poll(&interrupted, 1, kFailurePauseMs);
    }
  }

  client::DaemonClient& daemon_;
  client::Interrupt& interrupt_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Result<json::object>> ended_;  // guarded by mutex_
  std::size_t taken_ = 0;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

/// --json prints everything at the end; people and scripts get a line as each job ends.
struct Report {
  Context& context;
  std::size_t named;  ///< jobs on the command line
  json::array jobs = {};
  int exit_code = kDone;

  void add(const json::object& job) {
    exit_code = worse(exit_code, exit_code_of_state(text_at(job, "state")));
    if (context.json())
      jobs.push_back(job);
    else
      context.out(fmt::format("{} {}\n", text_at(job, "job_id"), text_at(job, "state")));
  }
  int finish() {
    if (context.json()) context.jobs_document(jobs, named);
    return exit_code;
  }
  int finish(const Error& error, int code) {
    if (!context.json()) return context.failed(error, code);
    context.document({{"jobs", jobs}, {"error", error_fields(error)}});
    return code;
  }
};

/// Why the wait for `open` ended, that they go on, and how to wait for them again.
Error still_open(ErrorCode code, std::string_view why, const std::vector<std::string>& open) {
  std::string ids;
  for (const std::string& id : open)
    ids += " " + id;
  Error error{code,
              open.size() == 1 ? fmt::format("{}; job{} goes on", why, ids)
                               : fmt::format("{}; these jobs go on:{}", why, ids),
              "ponder wait" + ids};
  if (open.size() == 1) error.job_id = open.front();
  return error;
}

int wait_for_jobs(Context& context, const Options& options) {
  if (options.wait_s && *options.wait_s < 0) return context.usage("--wait-s must not be negative");
  const auto started = steady_clock::now();
  std::optional<steady_clock::time_point> until;
  if (options.wait_s && *options.wait_s < 1e8)
    until = started + std::chrono::duration_cast<steady_clock::duration>(
                          std::chrono::duration<double>(*options.wait_s));
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto ids = resolve_job_ids(*daemon, options.words, &context.interrupt());
  if (!ids) return context.failed(ids.error());
  if (ids->size() > kJobsMax)
    return context.usage(
        fmt::format("{} jobs; at most {} can be waited for", ids->size(), kJobsMax));
  // An unknown id is an error before anything is waited for.
  std::vector<std::string> open;
  std::vector<json::object> ended;
  for (const std::string& id : *ids) {
    auto job = get_job(*daemon, id, 0, &context.interrupt());
    if (!job) return context.failed(job.error());
    if (is_final_state(text_at(*job, "state")))
      ended.push_back(std::move(*job));
    else
      open.push_back(id);
  }
  Report report{context, ids->size()};
  for (const json::object& job : ended)
    report.add(job);
  if (open.empty() || (options.any && !ended.empty())) return report.finish();

  Waiters waiters(*daemon, context.interrupt());
  waiters.start(open);
  for (std::size_t left = open.size(); left > 0; --left) {
    const auto next = waiters.next(until);
    if (!next || !*next) {
      const bool was_interrupted = context.interrupt().triggered();
      context.interrupt().trigger();  // ends the other waits; nothing is cancelled
      if (was_interrupted || !next)
        mark_as_told(*daemon, open, was_interrupted ? kInterruptedMs : kTimedOutMs);
      if (was_interrupted)
        return report.finish(still_open(ErrorCode::cancelled, "interrupted", open), kInterrupted);
      if (!next)
        return report.finish(still_open(ErrorCode::timed_out, "the wait timed out", open),
                             kWaitTimedOut);
      return report.finish(next->error(), exit_code_of(next->error().code));
    }
    report.add(**next);
    std::erase(open, text_at(**next, "job_id"));
    if (options.any) break;
  }
  context.interrupt().trigger();
  return report.finish();
}
}  // namespace

Action declare_wait(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words("ID", options->words, 1, 0, "the jobs");
  arguments.flag("--any", options->any, "until the first of them has ended");
  arguments.option("--wait-s", options->wait_s, "at most this long (exit 124); no bound if absent");
  return [options](Context& context) { return wait_for_jobs(context, *options); };
}

}  // namespace ponder::cli
