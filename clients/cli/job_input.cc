#include "clients/cli/job_input.h"

#include "clients/cli/envelope.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "clients/cli/job_ids.h"
#include "engine/base/unique_fd.h"
#include "engine/base/utf8.h"

namespace ponder::cli {
namespace {
// A request may have 32 MiB; text that becomes JSON may grow by its escapes.
constexpr std::size_t kInputBytesMax = 16u << 20;
constexpr std::size_t kSchemaBytesMax = 1u << 20;
constexpr std::size_t kFilesMax = 64;
// The prompt is rendered, counted and committed before the answer comes.
constexpr int kPostMs = 120'000;

tl::unexpected<Error> refuse(std::string param, std::string message, std::string hint = {}) {
  Error error{ErrorCode::bad_request, std::move(message), std::move(hint)};
  error.param = std::move(param);
  return fail(std::move(error));
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

Result<std::string> read_text(const std::vector<std::string>& words) {
  std::string text;
  if (words.empty() || (words.size() == 1 && words[0] == "-")) {
    if (words.empty() && ::isatty(STDIN_FILENO) == 1)
      return refuse("", "there is no text", "give it as arguments, or - for stdin");
    TRY(text, read_input("-", kInputBytesMax));
  } else {
    for (const std::string& word : words) {
      if (!text.empty()) text += ' ';
      text += word;
    }
  }
  if (is_blank(text))
    return refuse("", "the text is empty", "give it as arguments, or - for stdin");
  if (!is_valid_utf8(text)) return refuse("", "the text is not valid UTF-8");
  return text;
}

Result<json::array> read_files(const std::vector<std::string>& paths, std::size_t room) {
  if (paths.size() > kFilesMax)
    return refuse("files",
                  fmt::format("{} files; at most {} are accepted", paths.size(), kFilesMax));
  json::array files;
  for (const std::string& path : paths) {
    auto text = read_input(path, room);
    if (!text && text.error().code != ErrorCode::bad_request) return fail(text.error());
    if (!text) return refuse("files", text.error().message, text.error().hint);
    if (!is_valid_utf8(*text))
      return refuse("files", fmt::format("{} is not valid UTF-8 text", path),
                    "only text files can be given to the model");
    room -= text->size();
    files.push_back(
        json::object{{"name", path == "-" ? "stdin" : path}, {"text", std::move(*text)}});
  }
  return files;
}

/// "xhigh", or a budget in tokens.
json::value effort_value(const std::string& effort) {
  const bool digits = !effort.empty() && effort.size() < 16 &&
                      effort.find_first_not_of("0123456789") == std::string::npos;
  if (digits) return std::stoll(effort);
  return json::value(effort);
}
}  // namespace

void declare_job_input(Arguments& arguments, JobInput& input) {
  arguments.words("TEXT", input.words, 0, 0, "the text; - or nothing reads stdin");
  arguments.option("--continue-from", input.continue_from, "the job that this one goes on from");
  declare_job_options(arguments, input);
}

void declare_job_options(Arguments& arguments, JobInput& input) {
  arguments.option("-f,--file,--files", input.files, "a text file to send along (repeatable)");
  arguments.option("--context", input.context, "background that the text refers to",
                   Arguments::Empty::allowed);
  arguments.option("--system", input.system, "a system prompt", Arguments::Empty::allowed);
  arguments.option("-e,--effort", input.effort,
                   "none, low, medium, xhigh, or a thinking budget in tokens");
  arguments.option("--max-reasoning-tokens", input.max_reasoning_tokens,
                   "thinking at most this long");
  arguments.option("--max-answer-tokens", input.max_answer_tokens, "answer at most this long");
  arguments.option("--deadline-s", input.deadline_s, "run at most this long");
  arguments.option("--on-limit", input.on_limit,
                   "a spent thinking budget or deadline: stop (incomplete) or answer");
  arguments.option("--schema", input.schema_file, "a file with the JSON Schema of the answer");
  arguments.option("-l,--label", input.label, "a name for lists");
  arguments.option("--idempotency-key", input.idempotency_key, "the same key gives the same job");
  arguments.option("--mode", input.mode,
                   "follow_up: the text is the next turn after that job; resume: it goes on where "
                   "it was cut; answer_now: it stops thinking and answers");
  arguments.flag("--force-new", input.force_new, "a new job even if the same one is in the queue");
  arguments.flag("--pin", input.pin, "never prune the result");
  arguments.option("--workspace", input.workspace,
                   "the project it belongs to; this directory if absent");
}

Result<std::string> read_input(const std::string& path, std::size_t bytes_max) {
  UniqueFd opened;
  int fd = STDIN_FILENO;
  if (path != "-") {
    opened.reset(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    fd = opened.get();
    // A FIFO opens when somebody writes to it, and until then Ctrl-C comes.
    if (!opened && errno == EINTR) return fail(ErrorCode::cancelled, "interrupted");
    if (!opened)
      return fail(ErrorCode::bad_request,
                  fmt::format("{} cannot be read: {}", path, std::strerror(errno)));
  }
  const std::string name = path == "-" ? "stdin" : path;
  std::string text;
  std::string chunk(1 << 16, '\0');
  for (;;) {
    const ssize_t n = ::read(fd, chunk.data(), chunk.size());
    if (n < 0 && errno == EINTR) return fail(ErrorCode::cancelled, "interrupted");
    if (n < 0)
      return fail(ErrorCode::bad_request,
                  fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
    if (n == 0) return text;
    text.append(chunk, 0, static_cast<std::size_t>(n));
    if (text.size() > bytes_max)
      return fail(ErrorCode::bad_request,
                  fmt::format("{} is too large: all input together may have {} MiB", name,
                              kInputBytesMax >> 20),
                  "send only the parts that matter");
  }
}

Result<json::object> job_body(const JobInput& input, const std::string& kind) {
  json::object body{{"kind", kind}};
  const auto add = [&body](std::string_view key, const std::string& value) {
    if (!value.empty()) body[json::string_view(key.data(), key.size())] = value;
  };
  if (!input.mode.empty() && input.mode != "follow_up" && input.mode != "resume" &&
      input.mode != "answer_now")
    return refuse("mode", "--mode must be follow_up, resume or answer_now");
  if (!input.on_limit.empty() && input.on_limit != "stop" && input.on_limit != "answer")
    return refuse("on_limit", "--on-limit must be stop or answer");
  if (input.deadline_s && *input.deadline_s <= 0)
    return refuse("deadline_s", "--deadline-s must be more than 0");
  for (const auto& [name, tokens] : {std::pair{"max_reasoning_tokens", input.max_reasoning_tokens},
                                     std::pair{"max_answer_tokens", input.max_answer_tokens}}) {
    if (tokens && *tokens < 0) return refuse(name, fmt::format("{} must not be negative", name));
    if (tokens) body[name] = *tokens;
  }
  // These two go on inside the parent's own turn; a text would not be used.
  const bool without_text = input.words.empty() && !input.continue_from.empty() &&
                            (input.mode == "resume" || input.mode == "answer_now");
  std::string text;
  if (!without_text) {
    TRY(text, read_text(input.words));
    body["task"] = text;
  }
  const std::size_t room = kInputBytesMax - std::min(kInputBytesMax, text.size());
  for (const std::string* option :
       {&input.context, &input.system, &input.label, &input.workspace, &input.idempotency_key}) {
    if (!is_valid_utf8(*option)) return refuse("", "an option's text is not valid UTF-8");
  }
  add("context", input.context);
  add("system", input.system);
  if (!input.files.empty()) {
    TRY(json::array files, read_files(input.files, room));
    body["files"] = std::move(files);
  }
  if (!input.effort.empty()) body["effort"] = effort_value(input.effort);
  if (input.deadline_s) body["deadline_s"] = *input.deadline_s;
  add("on_limit", input.on_limit);
  if (!input.schema_file.empty()) {
    TRY(const std::string schema_text, read_input(input.schema_file, kSchemaBytesMax));
    auto schema = parse_json(schema_text);
    if (!schema)
      return refuse("schema", fmt::format("{}: {}", input.schema_file, schema.error().message));
    body["schema"] = std::move(*schema);
  }
  add("label", input.label);
  add("idempotency_key", input.idempotency_key);
  add("continue_from", input.continue_from);
  add("mode", input.mode);
  if (input.force_new) body["force_new"] = true;
  if (input.pin) body["pin"] = true;
  std::error_code ec;
  add("workspace",
      input.workspace.empty()
          ? current_workspace()
          : std::filesystem::absolute(input.workspace, ec).lexically_normal().string());
  return body;
}

Result<json::object> post_job(Context& context, client::DaemonClient& daemon, JobInput& input,
                              const std::string& kind, client::Interrupt* interrupt) {
  // The input is read before the daemon is asked for anything, so that a typing error starts none.
  TRY(json::object body, job_body(input, kind));
  if (!input.continue_from.empty()) {
    TRY(const std::string parent,
        resolve_job_id(daemon, input.continue_from, &context.interrupt()));
    body["continue_from"] = parent;
  }
  const json::value value(std::move(body));
  TRY(client::Response response, daemon.call("POST", "/v1/jobs", &value, kPostMs, interrupt));
  if (!response.body.is_object())
    return fail(ErrorCode::unreachable, "what listens there does not answer as a Ponder daemon",
                "check PONDER_URL or --home");
  return std::move(response.body.as_object());
}

int queue_job(Context& context, JobInput& input) {
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

}  // namespace ponder::cli
