// ponder result: a job's text, as it is.
#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "clients/cli/commands.h"
#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"
#include "engine/base/unique_fd.h"

namespace ponder::cli {
namespace {
constexpr int kResultMs = 120'000;  // many megabytes from a busy daemon

struct Options {
  std::vector<std::string> words;
  std::string part = "answer";
  std::string out_file;
  std::optional<std::int64_t> offset;
  std::optional<std::int64_t> limit;
};

/// Writes beside the file and renames, so that it holds all of the text or is not touched. What is
/// no regular file (/dev/null, a pipe) is written in place.
Result<void> write_file(const std::string& path, const std::string& text) {
  const auto failed = [&path] {
    if (errno == EINTR) return fail(ErrorCode::cancelled, "interrupted");  // a FIFO nobody reads
    return fail(ErrorCode::storage,
                fmt::format("{} cannot be written: {}", path, std::strerror(errno)));
  };
  std::error_code ec;
  const bool in_place =
      std::filesystem::exists(path, ec) && !std::filesystem::is_regular_file(path, ec);
  const std::string target = in_place ? path : fmt::format("{}.{}.part", path, ::getpid());
  const int flags = O_WRONLY | O_CLOEXEC | (in_place ? 0 : O_CREAT | O_EXCL);
  UniqueFd fd(::open(target.c_str(), flags, 0666));
  if (!fd) return failed();
  if (!write_fully(fd.get(), text) || (!in_place && ::fsync(fd.get()) != 0) ||
      (!in_place && ::rename(target.c_str(), path.c_str()) != 0)) {
    const auto error = failed();
    if (!in_place) ::unlink(target.c_str());
    return error;
  }
  return {};
}

/// An answer that is not there is reported by how its job stands.
int not_completed(Context& context, client::DaemonClient& daemon, const std::string& id,
                  Error error) {
  const auto job = get_job(daemon, id, 0, &context.interrupt());
  if (!job) return context.failed(error);
  error.job_id = id;
  // What there is to read: without a word of the answer, the thinking.
  const auto thought = number_at(*job, "reasoning_chars");
  if (is_final_state(text_at(*job, "state")) && number_at(*job, "total_chars").value_or(0) == 0 &&
      thought.value_or(0) > 0)
    error.hint = "read its thinking: ponder result --part reasoning " + id;
  const int exit_code = exit_code_of_state(text_at(*job, "state"));
  return context.failed(error, exit_code == kDone ? kNotYet : exit_code);
}

int result(Context& context, const Options& options) {
  if (options.part != "answer" && options.part != "reasoning" && options.part != "partial")
    return context.usage("--part must be answer, reasoning or partial");
  if (options.offset.value_or(0) < 0 || options.limit.value_or(0) < 0)
    return context.usage("--offset and --limit must not be negative");
  auto daemon = context.daemon(Start::allowed);
  if (!daemon) return context.failed(daemon.error());
  const auto id = resolve_job_id(*daemon, options.words.front(), &context.interrupt());
  if (!id) return context.failed(id.error());
  std::string query = "/result?part=" + options.part;
  if (options.offset) query += fmt::format("&offset={}", *options.offset);
  if (options.limit) query += fmt::format("&limit={}", *options.limit);
  auto answer =
      daemon->call("GET", job_target(*id, query), nullptr, kResultMs, &context.interrupt());
  if (!answer && answer.error().code == ErrorCode::not_completed)
    return not_completed(context, *daemon, *id, answer.error());
  if (!answer) return context.failed(answer.error());
  json::object page = answer->body.is_object() ? answer->body.as_object() : json::object{};
  const std::string text = text_at(page, "text");
  if (!options.out_file.empty() && options.out_file != "-") {
    if (auto written = write_file(options.out_file, text); !written)
      return context.failed(written.error());
    if (!context.json()) return kDone;
    page.erase("text");
    page["out_file"] = options.out_file;
  }
  if (context.json()) {
    context.document(page);
    return kDone;
  }
  context.out(text);
  if (context.terminal().out_is_terminal() && !text.empty() && !text.ends_with('\n'))
    context.out("\n");
  if (const auto next = number_at(page, "next_offset"); true_at(page, "truncated") && next)
    context.say(fmt::format("ponder: there is more: --offset {:.0f} of {:.0f} characters", *next,
                            number_at(page, "total_chars").value_or(*next)));
  return kDone;
}
}  // namespace

Action declare_result(Arguments& arguments) {
  auto options = std::make_shared<Options>();
  arguments.words("ID", options->words, 1, 1, "the job");
  arguments.option("-p,--part", options->part, "answer (default), reasoning or partial");
  arguments.option("-o,--out,--out-file", options->out_file, "write it to this file; - is stdout");
  arguments.option("--offset", options->offset, "begin after this many characters");
  arguments.option("--limit", options->limit, "at most this many characters");
  return [options](Context& context) { return result(context, *options); };
}

}  // namespace ponder::cli
