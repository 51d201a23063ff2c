// ponder cancel: idempotent; what a job had written stays readable.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
constexpr int kCancelMs = 60'000;  // the job ends at its next step, the answer comes after that

int cancel(Context& context, const std::vector<std::string>& words) {
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto ids = resolve_job_ids(*daemon, words, &context.interrupt());
  if (!ids) return context.failed(ids.error());
  json::array jobs;
  for (const std::string& id : *ids) {
    const auto answer =
        daemon->call("POST", job_target(id, "/cancel"), nullptr, kCancelMs, &context.interrupt());
    if (!answer) return context.failed(answer.error());
    const json::object job = answer->body.is_object() ? answer->body.as_object() : json::object{};
    if (context.json())
      jobs.push_back(job);
    else
      context.out(fmt::format("{} {}\n", text_at(job, "job_id"), text_at(job, "state")));
  }
  if (context.json()) context.jobs_document(jobs, ids->size());
  return kDone;
}
}  // namespace

Action declare_cancel(Arguments& arguments) {
  auto words = std::make_shared<std::vector<std::string>>();
  arguments.words("ID", *words, 1, 0, "the jobs");
  return [words](Context& context) { return cancel(context, *words); };
}

}  // namespace ponder::cli
