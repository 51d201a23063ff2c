// ponder version: the client's, and the daemon's if it runs.
#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/health_document.h"

namespace ponder::cli {
namespace {
int version(Context& context) {
  json::value daemon_version(nullptr);
  json::value build(nullptr);
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  if (const auto health = get_health(*daemon, &context.interrupt())) {
    if (health->contains("version")) daemon_version = health->at("version");
    if (health->contains("build")) build = health->at("build");
  }
  const json::object fields{
      {"version", PONDER_VERSION},
      {"client", json::object{{"version", PONDER_VERSION}}},
      {"daemon", daemon_version.is_null()
                     ? json::value(nullptr)
                     : json::value(json::object{{"version", daemon_version}, {"build", build}})}};
  if (context.json()) {
    context.document(fields);
    return kDone;
  }
  context.out("ponder " PONDER_VERSION "\n");
  if (const std::string known = text_at(fields, "daemon.version"); !known.empty())
    context.out("ponderd " + known + "\n");
  else
    context.say("ponder: the daemon does not run or does not say its version");
  return kDone;
}
}  // namespace

Action declare_version(Arguments&) {
  return version;
}

}  // namespace ponder::cli
