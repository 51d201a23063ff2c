// ponder unload: gives the model's memory back; the queue goes on accepting.
#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
/// The same with the ids of what runs, for whoever wants to wait for it.
Error with_ids(Context& context, client::DaemonClient& daemon, Error error) {
  const auto running = list_jobs(daemon, "state=running&", 5, &context.interrupt());
  if (!running || running->empty()) return error;  // a chat turn has no id
  error.job_id = text_at(running->front(), "job_id");
  std::string ids;
  for (const json::object& job : *running)
    ids += " " + text_at(job, "job_id");
  error.message += "; running:" + ids;
  error.hint = "wait for it (ponder wait" + ids + "), or cancel it";
  return error;
}

int unload(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto answer =
      daemon->call("POST", "/v1/unload", nullptr, kPromptlyMs, &context.interrupt());
  // At work is no fault: it can be tried again.
  if (!answer && answer.error().code == ErrorCode::not_terminal)
    return context.failed(with_ids(context, *daemon, answer.error()), kNotYet);
  if (!answer) return context.failed(answer.error());
  const json::value* was =
      answer->body.is_object() ? answer->body.as_object().if_contains("was_loaded") : nullptr;
  const bool was_loaded = was && was->is_bool() && was->as_bool();
  if (context.json())
    context.document({{"unloaded", true}, {"was_loaded", was_loaded}});
  else
    context.say(was_loaded ? "ponder: the model is unloaded; the next request loads it again"
                           : "ponder: no model was loaded");
  return kDone;
}
}  // namespace

Action declare_unload(Arguments&) {
  return unload;
}

}  // namespace ponder::cli
