// ponder logs: what a job has written so far; -f goes on until it ends.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_events.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
constexpr int kResultMs = 120'000;

struct Options {
  std::vector<std::string> words;
  bool follow = false;
  bool reasoning = false;
};

int print_so_far(Context& context, client::DaemonClient& daemon, const std::string& id,
                 const std::string& part) {
  const auto answer = daemon.call("GET", job_target(id, "/result?part=" + part), nullptr, kResultMs,
                                  &context.interrupt());
  if (!answer) return context.failed(answer.error());
  const json::object page = answer->body.is_object() ? answer->body.as_object() : json::object{};
  if (context.json())
    context.document(page);
  else
    context.out(text_at(page, "text"));
  return kDone;
}

int follow(Context& context, client::DaemonClient& daemon, const std::string& id, bool reasoning) {
  std::string last_kind;
  bool line_is_open = false;
  const auto end = follow_job(
      daemon, id,
      [&](std::string_view kind, const std::string& text) {
        if ((kind != "answer" && !reasoning) || text.empty()) return;
        // An empty line between the thinking and the answer.
        if (!last_kind.empty() && kind != last_kind) context.out(line_is_open ? "\n\n" : "\n");
        last_kind = kind;
        line_is_open = !text.ends_with('\n');
        context.out(text);
      },
      context.interrupt());
  if (!end) return context.failed(end.error());
  context.say(fmt::format("ponder: job {} is {}", id, state_in_words(*end)));
  return kDone;
}

int logs(Context& context, const Options& options) {
  if (context.json() && options.follow) return context.usage("--json goes without -f");
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto id = resolve_job_id(*daemon, options.words.front(), &context.interrupt());
  if (!id) return context.failed(id.error());
  if (options.follow) return follow(context, *daemon, *id, options.reasoning);
  return print_so_far(context, *daemon, *id, options.reasoning ? "reasoning" : "partial");
}
}  // namespace

Action declare_logs(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words("ID", options->words, 1, 1, "the job");
  arguments.flag("-f,--follow", options->follow, "go on until the job ends");
  arguments.flag("--reasoning", options->reasoning, "the thinking; with -f both");
  return [options](Context& context) { return logs(context, *options); };
}

}  // namespace ponder::cli
