// ponder stop: stops the daemon and leaves the marker that keeps clients from starting it again.
// Says so only when the daemon and its worker are gone, since device memory is back only then.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <thread>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cpp/instance_lock.h"
#include "engine/base/clock.h"
#include "engine/base/unique_fd.h"

namespace ponder::cli {
namespace {
using std::chrono::milliseconds;
using std::chrono::steady_clock;
// A clean stop ends the running step, keeps its state and closes the database.
constexpr auto kCleanStop = milliseconds(60'000);
// --now asks again (a second SIGTERM skips the grace), then kills: jobs survive that as well.
constexpr auto kAskAgain = milliseconds(300);
constexpr auto kThenKill = milliseconds(3'000);
constexpr auto kAfterKill = milliseconds(5'000);
constexpr auto kPoll = milliseconds(10);

struct Options {
  bool now = false;
  bool dry_run = false;
  bool quiet = false;  ///< for a restart, which has its own last word
};

struct Running {
  int daemon = 0;
  int worker = 0;
  int running_jobs = 0;
  int waiting_jobs = 0;
  std::string device;
  bool suspended = false;  ///< it does not answer because it is stopped, as by Ctrl-Z
};

/// Whether the process exists and has not ended. One that has ended stays a zombie until its parent
/// asks for it, which in a container may be never.
bool lives(int pid) {
  if (pid <= 1 || (::kill(pid, 0) != 0 && errno != EPERM)) return false;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(stat, line)) return true;  // no /proc here
  const std::size_t name_end = line.rfind(')');
  return name_end == std::string::npos || line.compare(name_end, 3, ") Z") != 0;
}

/// Waits until `gone` is true, at most `bound`; false if time ran out or Ctrl-C came.
template <class Gone>
bool wait_until(Context& context, milliseconds bound, Gone gone) {
  const auto until = steady_clock::now() + bound;
  while (!gone()) {
    if (steady_clock::now() >= until || context.interrupt().triggered()) return false;
    std::this_thread::sleep_for(kPoll);
  }
  return true;
}

Result<void> write_marker(const Places& places) {
  TRY_VOID(make_private_dir(places.state_dir));
  const std::string target = places.stopped_marker.string() + ".new";
  const UniqueFd fd(
      ::open(target.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const std::string text = rfc3339(system_clock().wall_ms()) + "\n";
  if (!fd || !write_fully(fd.get(), text) ||
      ::rename(target.c_str(), places.stopped_marker.c_str()) != 0)
    return fail(ErrorCode::storage,
                fmt::format("{} cannot be written: {}", places.stopped_marker.string(),
                            std::strerror(errno)));
  return {};
}

/// Who runs: the daemon from its lock, the worker from /health while the daemon still answers.
Result<Running> find_running(client::DaemonClient& daemon, const Places& places) {
  Running running;
  const client::LockHolder holder = client::read_instance_lock(places.lock);
  if (!holder.held) return running;
  if (holder.pid == 0)
    return fail(ErrorCode::internal,
                fmt::format("a process holds {}, but not the one that the file names",
                            places.lock.string()),
                fmt::format("fuser -v {}", places.lock.string()));
  running.daemon = holder.pid;
  // A daemon that hangs must not keep us from stopping it.
  const auto answer = daemon.call("GET", "/health", nullptr, 2'000);
  running.suspended = !answer && answer.error().message.find("suspended") != std::string::npos;
  if (answer && answer->body.is_object()) {
    const json::object& health = answer->body.as_object();
    const auto whole = [&health](std::string_view path) {
      return static_cast<int>(number_at(health, path).value_or(0));
    };
    running.device = text_at(health, "engine.device");
    running.worker = whole("engine.pid");
    running.running_jobs = whole("queue.running");
    running.waiting_jobs = whole("queue.ask") + whole("queue.batch");
  }
  return running;
}

int report(Context& context, const Running& running, bool stopped, const std::string& sentence) {
  if (context.json()) {
    const auto pid = [](int n) { return n > 0 ? json::value(n) : json::value(nullptr); };
    context.document({{"stopped", stopped},
                      {"was_running", running.daemon > 0},
                      {"daemon_pid", pid(running.daemon)},
                      {"worker_pid", pid(running.worker)},
                      {"running_jobs", running.running_jobs},
                      {"waiting_jobs", running.waiting_jobs},
                      {"message", sentence}});
  } else {
    context.say("ponder: " + sentence);
  }
  return kDone;
}

std::string worker_in_words(const Running& running) {
  return running.worker > 0 ? fmt::format(" and its worker (process {})", running.worker) : "";
}

int stop(Context& context, const Options& options) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  if (!daemon->options().url.empty())
    return context.usage("PONDER_URL names a daemon elsewhere; stop it on that machine");
  const Places& places = daemon->options().places;
  const auto found = find_running(*daemon, places);
  if (!found) return context.failed(found.error());
  if (options.dry_run) {
    if (found->daemon == 0)
      return report(context, *found, false,
                    "no daemon is running; clients would be told not to start it");
    return report(context, *found, false,
                  fmt::format("would stop the daemon (process {}){}; {} running and {} waiting "
                              "jobs would stay on disk",
                              found->daemon, worker_in_words(*found), found->running_jobs,
                              found->waiting_jobs));
  }
  if (found->suspended && !options.now)
    return context.failed(
        {ErrorCode::unreachable,
         fmt::format("the daemon (process {}) is suspended and cannot stop by itself",
                     found->daemon),
         fmt::format("kill -CONT {} and stop it again, or: ponder stop --now", found->daemon)});
  // The marker first: a client that asks while the daemon goes must not start the next one.
  // On a full disk it stops all the same, and says that clients were not told.
  if (auto marked = write_marker(places); !marked) {
    if (found->daemon == 0) return context.failed(marked.error());
    context.say("ponder: " + marked.error().message + "; a client may start the daemon again");
  }
  if (found->daemon == 0 && options.quiet) return kDone;
  if (found->daemon == 0)
    return report(context, *found, true,
                  fmt::format("no daemon is running; clients will not start it until `{}`",
                              context.own_command("ponder start")));

  const auto gone = [&] { return !lives(found->daemon); };
  const auto all_gone = [&] { return gone() && !lives(found->worker); };
  if (::kill(found->daemon, SIGTERM) != 0 && errno != ESRCH)
    return context.failed({ErrorCode::forbidden, fmt::format("process {} cannot be stopped: {}",
                                                             found->daemon, std::strerror(errno))});
  bool done = false;
  if (options.now) {
    done = wait_until(context, kAskAgain, all_gone);
    if (!done && !gone()) ::kill(found->daemon, SIGTERM);
    done = done || wait_until(context, kThenKill, all_gone);
    if (!done && !context.interrupt().triggered()) {
      if (!gone()) ::kill(found->daemon, SIGKILL);
      // The worker ends with the daemon by itself; its number is only trusted for waiting.
      done = wait_until(context, kAfterKill, all_gone);
    }
  } else {
    done = wait_until(context, kCleanStop, all_gone);
  }
  if (context.interrupt().triggered())
    return context.failed({ErrorCode::cancelled, "interrupted; the daemon goes on stopping"});
  if (!done)
    return context.failed(
        {ErrorCode::timed_out,
         gone() ? fmt::format("the daemon is gone; its worker (process {}) still is there",
                              found->worker)
                : fmt::format("the daemon (process {}) is still stopping", found->daemon),
         "ponder stop --now"},
        kNotYet);
  if (options.quiet) return kDone;
  const bool other_device = found->worker > 0 && !found->device.empty() && found->device != "cpu";
  return report(
      context, *found, true,
      fmt::format("the daemon (process {}){} {} gone{}; `{}` starts it again", found->daemon,
                  worker_in_words(*found), found->worker > 0 ? "are" : "is",
                  other_device ? ", the memory of " + found->device + " is free" : "",
                  context.own_command("ponder start")));
}
}  // namespace

int stop_daemon(Context& context, bool now) {
  return stop(context, {.now = now, .quiet = true});
}

Action declare_stop(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.flag("--now", options->now,
                 "do not wait for the running step; kill after a few seconds");
  arguments.flag("--dry-run", options->dry_run, "only say what would be done");
  return [options](Context& context) { return stop(context, *options); };
}

}  // namespace ponder::cli
