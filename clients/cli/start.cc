// ponder start: the owner wants the daemon to run; takes back an earlier `ponder stop`.
#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"
#include "clients/cpp/instance_lock.h"
#include "engine/base/clock.h"

namespace ponder::cli {
namespace {
// A model that cannot be used is found out sooner than this; a large one goes on loading.
constexpr std::int64_t kSettleMs = 5'000;
constexpr auto kLookAgain = std::chrono::milliseconds(50);

/// The health once the engine is neither starting nor loading, or how it is when time is over.
Result<json::object> settled_health(Context& context, client::DaemonClient& daemon) {
  const std::int64_t until = system_clock().steady_ms() + kSettleMs;
  for (;;) {
    auto health = get_health(daemon, &context.interrupt());
    if (!health || text_at(*health, "state") != "loading" || system_clock().steady_ms() >= until)
      return health;
    std::this_thread::sleep_for(kLookAgain);
  }
}

int start(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const client::ClientOptions& options = daemon->options();
  if (!options.url.empty())
    return context.usage("PONDER_URL names a daemon elsewhere; start it on that machine");
  if (context.globals().no_start)
    return context.usage("`start` and --no-start contradict each other");
  // A daemon that is being killed still takes connections: only the one that answers counts.
  const std::filesystem::path& lock = options.places.lock;
  const bool listened = daemon->is_running();
  const int pid_before = client::read_instance_lock(lock).pid;
  if (auto begun = client::start_daemon(options.places, true, &context.interrupt()); !begun)
    return context.failed(begun.error());
  auto started = context.daemon(Start::allowed);
  if (!started) return context.failed(started.error());
  const auto health = settled_health(context, *started);
  if (!health) return context.failed(health.error());
  const bool was_running = listened && pid_before == client::read_instance_lock(lock).pid;
  if (context.json())
    context.document({{"started", !was_running}, {"health", *health}});
  else
    context.say(fmt::format("ponder: the daemon {}; {}",
                            was_running ? "was running already" : "runs",
                            fmt::join(health_lines(*health), "\n  ")));
  // Loading is a start that goes well; an engine that gave up is not.
  if (exit_code_of_health(*health, false) == kDone || text_at(*health, "state") == "loading")
    return kDone;
  if (!context.json()) context.say("  " + context.own_command("what is wrong: ponder doctor"));
  return kNotYet;
}
}  // namespace

int start_daemon(Context& context) {
  return start(context);
}

Action declare_start(Arguments&) {
  return start;
}

}  // namespace ponder::cli
