// ponder prune: results that were read expire now. Pinned ones stay, and what has not ended.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
struct Options {
  bool unread = false;
  bool everywhere = false;
  bool dry_run = false;
};

int prune(Context& context, const Options& options) {
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  json::object body{{"unread", options.unread}, {"dry_run", options.dry_run}};
  if (!options.everywhere) body["workspace"] = current_workspace();
  const json::value value(std::move(body));
  json::array all;
  while (true) {  // the daemon takes some at a time
    const auto answer =
        daemon->call("POST", "/v1/jobs/prune", &value, kPromptlyMs, &context.interrupt());
    if (!answer) return context.failed(answer.error());
    const json::value* pruned =
        answer->body.is_object() ? answer->body.as_object().if_contains("pruned") : nullptr;
    if (!pruned || !pruned->is_array() || pruned->as_array().empty()) break;
    for (const json::value& id : pruned->as_array()) {
      if (!context.json() && id.is_string())
        context.out(std::string(std::string_view(id.as_string())) + "\n");
      all.push_back(id);
    }
    if (options.dry_run) break;
  }
  if (context.json())
    context.document({{"pruned", all}, {"dry_run", options.dry_run}});
  else
    context.say(fmt::format("ponder: {} results {}", all.size(),
                            options.dry_run ? "would go" : "are gone"));
  return kDone;
}
}  // namespace

Action declare_prune(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.flag("--unread", options->unread, "also results that nobody has read");
  arguments.flag("-a,--all", options->everywhere, "of every directory, not only of this one");
  arguments.flag("--dry-run", options->dry_run,
                 "only say which would go; `ponder ps -s expired` lists what is gone");
  return [options](Context& context) { return prune(context, *options); };
}

}  // namespace ponder::cli
