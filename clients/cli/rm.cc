// ponder rm: deletes jobs that have ended.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
int remove_jobs(Context& context, const std::vector<std::string>& words) {
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto ids = resolve_job_ids(*daemon, words, &context.interrupt());
  if (!ids) return context.failed(ids.error());
  json::array removed;
  for (const std::string& id : *ids) {
    const auto answer =
        daemon->call("DELETE", job_target(id), nullptr, kPromptlyMs, &context.interrupt());
    if (!answer) return context.failed(answer.error());
    removed.emplace_back(id);
    if (!context.json()) context.out(id + "\n");
  }
  if (context.json()) context.document({{"removed", removed}});
  return kDone;
}
}  // namespace

Action declare_rm(Arguments& arguments) {
  auto words = std::make_shared<std::vector<std::string>>();
  arguments.words("ID", *words, 1, 0, "the jobs");
  return [words](Context& context) { return remove_jobs(context, *words); };
}

}  // namespace ponder::cli
