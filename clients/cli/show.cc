// ponder show: the whole envelope of one job.
#include <fmt/core.h>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
void append_rows(std::string& out, const std::string& prefix, const json::object& object) {
  for (const auto& [key, value] : object) {
    const std::string name = prefix + std::string(key);
    if (value.is_object()) {
      append_rows(out, name + ".", value.as_object());
    } else if (value.is_string()) {
      out += fmt::format("{}: {}\n", name,
                         std::string_view(value.as_string().data(), value.as_string().size()));
    } else {
      out += fmt::format("{}: {}\n", name, value.is_null() ? "-" : to_json(value));
    }
  }
}

int show(Context& context, const std::string& word) {
  auto daemon = context.daemon(Start::never);
  if (!daemon) return context.failed(daemon.error());
  const auto id = resolve_job_id(*daemon, word, &context.interrupt());
  if (!id) return context.failed(id.error());
  const auto job = get_job(*daemon, *id, 0, &context.interrupt());
  if (!job) return context.failed(job.error());
  if (context.json()) {
    context.document(*job);
    return kDone;
  }
  std::string rows;
  append_rows(rows, "", context.with_own_next(*job));
  context.out(rows);
  return kDone;
}
}  // namespace

Action declare_show(Arguments& arguments) {
  auto words = std::make_shared<std::vector<std::string>>();
  arguments.words("ID", *words, 1, 1, "the job");
  return [words](Context& context) { return show(context, words->front()); };
}

}  // namespace ponder::cli
