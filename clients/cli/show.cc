// ponder show: the whole envelope of one job; for people, also the beginning and the end of what
// was asked and the seed.
#include <fmt/core.h>

#include <algorithm>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"
#include "engine/base/utf8.h"

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

/// `text` on one line, without its middle where it is long: context comes first, the task last.
std::string abridged(std::string_view text) {
  constexpr std::int64_t kHead = 100, kTail = 200;
  const std::int64_t size = count_code_points(text);
  std::string shown(text);
  if (size > kHead + kTail)
    shown = fmt::format("{} [{} characters] {}", text.substr(0, byte_offset_of(text, kHead)),
                        size - kHead - kTail, text.substr(byte_offset_of(text, size - kTail)));
  std::replace(shown.begin(), shown.end(), '\n', ' ');
  return shown;
}

/// What the envelope does not hold. Nothing of an expired job, or of one at an older daemon; where
/// the daemon does not answer, the error.
Result<std::string> request_rows(client::DaemonClient& daemon, const std::string& id,
                                 client::Interrupt* interrupt) {
  const auto page =
      daemon.call("GET", job_target(id, "/result?part=request"), nullptr, kPromptlyMs, interrupt);
  if (!page) {
    const ErrorCode code = page.error().code;
    if (code == ErrorCode::gone || code == ErrorCode::bad_request || code == ErrorCode::not_found)
      return std::string();
    return fail(page.error());
  }
  if (!page->body.is_object()) return std::string();
  const json::object& request = page->body.as_object();
  std::string rows = fmt::format("request: {}\n", abridged(text_at(request, "text")));
  if (const json::value* seed = request.if_contains("seed"); seed && !seed->is_null())
    rows += fmt::format("seed: {}\n", to_json(*seed));
  return rows;
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
  const auto request = request_rows(*daemon, *id, &context.interrupt());
  context.out(request ? rows + *request : rows);
  if (!request) return context.failed(request.error());
  return kDone;
}
}  // namespace

Action declare_show(Arguments& arguments) {
  auto words = std::make_shared<std::vector<std::string>>();
  arguments.words("ID", *words, 1, 1, "the job");
  return [words](Context& context) { return show(context, words->front()); };
}

}  // namespace ponder::cli
