// ponder submit: queue a job; its id is all that stands on stdout.
#include "clients/cli/commands.h"
#include "clients/cli/job_input.h"

namespace ponder::cli {
Action declare_submit(Arguments& arguments) {
  auto input = std::make_shared<JobInput>();
  declare_job_input(arguments, *input);
  return [input](Context& context) { return queue_job(context, *input); };
}

}  // namespace ponder::cli
