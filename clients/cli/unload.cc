// ponder unload: gives the model's memory back; the queue goes on accepting.
#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"

namespace ponder::cli {
namespace {
int unload(Context& context) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto answer =
      daemon->call("POST", "/v1/unload", nullptr, kPromptlyMs, &context.interrupt());
  // At work is no fault: it can be tried again.
  if (!answer)
    return answer.error().code == ErrorCode::not_terminal ? context.failed(answer.error(), kNotYet)
                                                          : context.failed(answer.error());
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
