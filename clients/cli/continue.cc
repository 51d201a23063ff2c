// ponder continue: a new job that goes on from an earlier one. Without a text that one goes on
// where it was cut; with a text, the text is the next turn.
#include "clients/cli/commands.h"
#include "clients/cli/job_ids.h"
#include "clients/cli/job_input.h"

namespace ponder::cli {
namespace {
int go_on(Context& context, JobInput& input, bool answer_now) {
  if (answer_now && !input.mode.empty() && input.mode != "answer_now")
    return context.usage("--answer-now and --mode contradict each other");
  if (answer_now) input.mode = "answer_now";
  if (input.words.front().empty()) return context.failed(no_such_job(input.words.front()));
  input.continue_from = input.words.front();
  input.words.erase(input.words.begin());
  // Stdin is a text only where "-" says so: a job is resumed without one, also in a script.
  if (input.mode.empty()) input.mode = input.words.empty() ? "resume" : "follow_up";
  return queue_job(context, input);
}
}  // namespace

Action declare_continue(Arguments& arguments) {
  auto input = std::make_shared<JobInput>();
  auto answer_now = std::make_shared<bool>(false);
  arguments.words("ID_AND_TEXT", input->words, 1, 0, "the job, and the next turn if there is one");
  arguments.flag("--answer-now", *answer_now,
                 "stop thinking and answer; the same as --mode answer_now");
  declare_job_options(arguments, *input);
  return [input, answer_now](Context& context) { return go_on(context, *input, *answer_now); };
}

}  // namespace ponder::cli
