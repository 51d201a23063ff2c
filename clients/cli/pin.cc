// ponder pin, ponder unpin: a pinned job's result is never pruned.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
int set_pins(Context& context, const std::vector<std::string>& words, bool pinned) {
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto ids = resolve_job_ids(*daemon, words, &context.interrupt());
  if (!ids) return context.failed(ids.error());
  const json::value body(json::object{{"pinned", pinned}});
  json::array jobs;
  for (const std::string& id : *ids) {
    const auto answer =
        daemon->call("POST", job_target(id, "/pin"), &body, kPromptlyMs, &context.interrupt());
    if (!answer) return context.failed(answer.error());
    if (context.json())
      jobs.push_back(answer->body);
    else
      context.out(fmt::format("{} {}\n", id, pinned ? "pinned" : "unpinned"));
  }
  if (context.json()) context.jobs_document(jobs, ids->size());
  return kDone;
}

Action declare(Arguments& arguments, bool pinned) {
  auto words = std::make_shared<std::vector<std::string>>();
  arguments.words("ID", *words, 1, 0, "the jobs");
  return [words, pinned](Context& context) { return set_pins(context, *words, pinned); };
}
}  // namespace

Action declare_pin(Arguments& arguments) {
  return declare(arguments, true);
}
Action declare_unpin(Arguments& arguments) {
  return declare(arguments, false);
}

}  // namespace ponder::cli
