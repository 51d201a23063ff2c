// ponder start: the owner wants the daemon to run; takes back an earlier `ponder stop`.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"

namespace ponder::cli {
namespace {
int start(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const client::ClientOptions& options = daemon->options();
  if (!options.url.empty())
    return context.usage("PONDER_URL names a daemon elsewhere; start it on that machine");
  if (context.globals().no_start)
    return context.usage("`start` and --no-start contradict each other");
  const bool was_running = daemon->is_running();
  if (auto started = client::start_daemon(options.places, true, &context.interrupt()); !started)
    return context.failed(started.error());
  const auto health = get_health(*daemon, &context.interrupt());
  if (!health) return context.failed(health.error());
  if (context.json())
    context.document({{"started", !was_running}, {"health", *health}});
  else
    context.say(fmt::format("ponder: the daemon {}; {}",
                            was_running ? "was running already" : "runs",
                            health_in_words(*health)));
  return kDone;
}
}  // namespace

Action declare_start(Arguments&) {
  return start;
}

}  // namespace ponder::cli
