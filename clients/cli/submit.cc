// ponder submit: queue a job; its id is all that stands on stdout.
#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_input.h"

namespace ponder::cli {
namespace {
int submit(Context& context, JobInput& input) {
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto job = post_job(context, *daemon, input, "batch", &context.interrupt());
  if (!job) return context.failed(job.error());
  if (context.json()) {
    context.document(*job);
    return kDone;
  }
  context.out(text_at(*job, "job_id") + "\n");
  context.note(text_at(*job, "note"));
  // For people: in a script every line on stderr is a line too many.
  if (context.terminal().err_is_terminal()) context.note(text_at(*job, "warning"));
  return kDone;
}
}  // namespace

Action declare_submit(Arguments& arguments) {
  auto input = std::make_shared<JobInput>();
  declare_job_input(arguments, *input);
  return [input](Context& context) { return submit(context, *input); };
}

}  // namespace ponder::cli
