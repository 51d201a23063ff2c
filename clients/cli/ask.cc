// ponder ask: a question whose answer is streamed as it is written. The job lives in the daemon:
// Ctrl-C or a spent --wait-s leaves it there and says its id.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_events.h"
#include "clients/cli/job_ids.h"
#include "clients/cli/job_input.h"
#include "engine/base/clock.h"
#include "engine/base/utf8.h"

namespace ponder::cli {
namespace {
struct Options {
  JobInput input;
  std::optional<double> wait_s;
};

/// Triggers an interrupt when a time has passed, unless it is destroyed before.
class Alarm {
 public:
  Alarm(double seconds, client::Interrupt& interrupt)
      : thread_([this, seconds, &interrupt] {
          std::unique_lock lock(mutex_);
          if (off_changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                                    [this] { return off_; }))
            return;
          rang_ = true;
          interrupt.trigger();
        }) {}
  ~Alarm() {
    {
      const std::lock_guard lock(mutex_);
      off_ = true;
    }
    off_changed_.notify_all();
    thread_.join();
  }
  bool rang() {
    const std::lock_guard lock(mutex_);
    return rang_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable off_changed_;
  bool off_ = false;   // guarded by mutex_
  bool rang_ = false;  // guarded by mutex_
  std::thread thread_;
};

int detach(Context& context, client::DaemonClient& daemon, const std::string& id, bool timed_out) {
  mark_as_told(daemon, {id}, timed_out ? kTimedOutMs : kInterruptedMs);
  Error error{timed_out ? ErrorCode::timed_out : ErrorCode::cancelled,
              fmt::format("job {} goes on", id),
              fmt::format("{} && {}", context.own_command("ponder wait " + id),
                          context.own_command("ponder result " + id))};
  error.job_id = id;
  return context.failed(error, timed_out ? kWaitTimedOut : kInterrupted);
}

int report_end(Context& context, client::DaemonClient& daemon, json::object job,
               const std::string& streamed) {
  const std::string id = text_at(job, "job_id");
  const std::string state = text_at(job, "state");
  const int exit_code = exit_code_of_state(state);
  std::string answer = streamed;
  if (state == "completed") {
    // Reading the answer to its end tells the daemon that it was delivered. It is also the truth
    // about the text: a stream that joined late may have missed something.
    auto whole = daemon.call("GET", job_target(id, "/result?part=answer"), nullptr, kPromptlyMs,
                             &context.interrupt());
    if (whole && whole->body.is_object()) answer = text_at(whole->body.as_object(), "text");
  }
  if (context.json()) {
    // One document holds it all, also an answer that is too long for an envelope.
    if (state == "completed") {
      job["answer"] = answer;
      job["truncated"] = false;
      job["next_offset"] = nullptr;
    }
    context.document(job);
    return exit_code;
  }
  if (answer.starts_with(streamed)) {
    context.out(std::string_view(answer).substr(streamed.size()));
  } else {
    context.out("\n");
    context.say("ponder: the answer was interrupted and began anew; here is the whole of it");
    context.out(answer);
  }
  if (!answer.empty() && !answer.ends_with('\n')) context.out("\n");
  context.note(text_at(job, "note"));
  if (true_at(job, "forced_answer"))
    context.say("ponder: the thinking was cut off by its limit before this answer");
  if (exit_code == kDone) return kDone;
  std::string line = fmt::format("ponder: job {} is {}", id, state_in_words(job));
  if (const std::string why = text_at(job, "error.message"); !why.empty()) line += ": " + why;
  if (const std::string hint = text_at(job, "error.hint"); !hint.empty()) line += "\n  " + hint;
  if (const std::string next = text_at(job, "next.shell"); !next.empty())
    line += "\n  " + context.own_command(next);
  context.say(line);
  return exit_code;
}

int ask(Context& context, Options& options) {
  if (options.wait_s && *options.wait_s < 0) return context.usage("--wait-s must not be negative");
  const std::int64_t began_ms = system_clock().steady_ms();
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  // Not interruptible: after Ctrl-C the id must still be learned, or the job could not be found
  // again. A second Ctrl-C ends the program.
  auto job = post_job(context, *daemon, options.input, "ask", nullptr);
  if (!job) return context.failed(job.error());
  const std::string id = text_at(*job, "job_id");
  if (!context.json()) context.note(text_at(*job, "note"));
  std::optional<Alarm> alarm;
  if (options.wait_s) {
    const auto passed_ms = static_cast<double>(system_clock().steady_ms() - began_ms);
    alarm.emplace(std::max(0.0, *options.wait_s - passed_ms / 1000), context.interrupt());
  }
  std::string answer;
  std::int64_t thought_chars = 0;
  auto ended = follow_job(
      *daemon, id,
      [&](std::string_view kind, const std::string& text) {
        if (kind == "answer") {
          answer += text;
          if (!context.json()) context.out(text);
        } else {
          thought_chars += count_code_points(text);
          context.terminal().counter(fmt::format("thinking: {} characters", thought_chars));
        }
      },
      context.interrupt());
  if (ended) return report_end(context, *daemon, std::move(*ended), answer);
  if (!answer.empty() && !context.json()) context.out("\n");
  if (ended.error().code == ErrorCode::cancelled)
    return detach(context, *daemon, id, alarm && alarm->rang());
  mark_as_told(*daemon, {id}, kTimedOutMs);
  Error error = ended.error();
  error.job_id = id;
  error.hint = fmt::format("the job is {}; {} && {}", id, context.own_command("ponder wait " + id),
                           context.own_command("ponder result " + id));
  return context.failed(error);
}
}  // namespace

Action declare_ask(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  declare_job_input(arguments, options->input);
  arguments.option("--wait-s", options->wait_s,
                   "leave after this long; the job goes on (exit 124)");
  return [options](Context& context) { return ask(context, *options); };
}

}  // namespace ponder::cli
