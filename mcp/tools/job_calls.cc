#include "mcp/tools/job_calls.h"

#include <fmt/core.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <thread>

#include "mcp/tools/report.h"

namespace ponder::mcp {
namespace {
constexpr int kCallTimeoutMs = 15'000;
// A wait that the daemon does not end by itself is over soon after its bound: clients give up at 60
// s.
constexpr int kAfterWaitMs = 3'000;
constexpr int kSubmitTimeoutMs = 40'000;  // a large prompt is tokenized before the answer
constexpr int kMaxLostCalls = 4;
constexpr int kRetryPauseMs = 250;
// What is told at the end of a wait is on its way when this has passed.
constexpr int kTellTimeoutMs = 2'000;

/// Pauses, or returns at once when nobody waits any more.
void pause(int ms, client::Interrupt& interrupt) {
  pollfd p{interrupt.wait_fd(), POLLIN, 0};
  ::poll(&p, 1, ms);
}

bool is_lost(const Error& error) {
  return error.code == ErrorCode::unreachable || error.code == ErrorCode::stream_lost ||
         error.code == ErrorCode::loading;
}

/// The calls in a row that a wait has lost. A daemon that is restarted costs one or two.
class Losses {
 public:
  /// After a call that failed: pauses and returns true if the wait goes on.
  bool passing(const Error& error, client::Interrupt& interrupt) {
    if (!is_lost(error) || ++count_ >= kMaxLostCalls) return false;
    pause(kRetryPauseMs, interrupt);
    return true;
  }
  void over() { count_ = 0; }

 private:
  int count_ = 0;
};

tl::unexpected<Error> given_up() {
  return fail(ErrorCode::cancelled, "the wait was given up");
}

Result<json::object> body_object(Result<client::Response> response) {
  if (!response) return fail(std::move(response).error());
  if (!response->body.is_object())
    return fail(ErrorCode::internal, "the daemon's answer is not a JSON object",
                "check that ponderd and ponder-mcp are of the same version");
  return std::move(response->body.as_object());
}

/// Tells the client how the job is getting on, from a thread of its own, as long as it lives.
class ProgressReporter {
 public:
  ProgressReporter(const ToolContext& context, ToolCall& call, std::string id)
      : context_(context), call_(call), id_(std::move(id)) {
    if (call.progress.wanted()) thread_ = std::thread([this] { run(); });
  }
  ~ProgressReporter() {
    stop_.trigger();
    if (thread_.joinable()) thread_.join();
  }
  ProgressReporter(const ProgressReporter&) = delete;
  ProgressReporter& operator=(const ProgressReporter&) = delete;

 private:
  void run() {
    for (;;) {
      pause(call_.progress.interval_ms(), stop_);
      if (stop_.triggered()) return;
      const auto job = get_job(context_, &stop_, id_);
      if (stop_.triggered()) return;
      call_.progress.report(job ? progress_message(*job) : "waiting for the daemon");
    }
  }

  const ToolContext& context_;
  ToolCall& call_;
  const std::string id_;
  client::Interrupt stop_;
  std::thread thread_;
};

const json::value* field(const json::object& envelope, std::string_view key) {
  return envelope.if_contains(key);
}
}  // namespace

Result<json::object> post_job(const ToolContext& context, ToolCall& call, json::object body) {
  const json::value value(std::move(body));
  return body_object(
      context.daemon.call("POST", "/v1/jobs", &value, kSubmitTimeoutMs, &call.interrupt));
}

Result<json::object> get_job(const ToolContext& context, client::Interrupt* interrupt,
                             std::string_view id, const client::JobLook& look) {
  int timeout_ms = look.told ? kTellTimeoutMs : kCallTimeoutMs;
  if (look.wait_s > 0) timeout_ms = static_cast<int>(std::ceil(look.wait_s * 1000)) + kAfterWaitMs;
  TRY(json::object envelope, body_object(context.daemon.call("GET", client::look_target(id, look),
                                                             nullptr, timeout_ms, interrupt)));
  envelope["answer"] = nullptr;
  return envelope;
}

Result<TextPage> get_text(const ToolContext& context, ToolCall& call, std::string_view id,
                          std::string_view part, std::int64_t offset, std::int64_t limit) {
  std::string target = fmt::format("/v1/jobs/{}/result?part={}&offset={}", id, part, offset);
  if (limit >= 0) target += fmt::format("&limit={}", limit);
  TRY(const json::object body,
      body_object(context.daemon.call("GET", target, nullptr, kCallTimeoutMs, &call.interrupt)));
  return TextPage{text_of(body, "text"), whole_of(body, "offset", offset),
                  whole_of(body, "total_chars"), whole_of(body, "next_offset", -1)};
}

Result<json::object> wait_for_job(const ToolContext& context, ToolCall& call, json::object job,
                                  std::int64_t deadline_ms,
                                  const std::function<bool(const json::object&)>& enough) {
  const std::string id = text_of(job, "job_id");
  const ProgressReporter reporter(context, call, id);
  Losses losses;
  while (!enough(job)) {
    const std::int64_t began_ms = context.clock.steady_ms();
    const double left_s = static_cast<double>(deadline_ms - began_ms) / 1000;
    if (left_s <= 0) break;
    auto now = get_job(context, &call.interrupt, id, {.wait_s = left_s, .seen = &job});
    if (call.interrupt.triggered()) return given_up();
    if (!now) {
      if (!losses.passing(now.error(), call.interrupt)) return now;
      continue;
    }
    losses.over();
    // The daemon answers early only when something moved; if nothing did, do not spin on it.
    const bool early = context.clock.steady_ms() - began_ms < kRetryPauseMs;
    if (early && !client::has_moved(job, *now)) pause(kRetryPauseMs, call.interrupt);
    job = std::move(*now);
  }
  if (is_terminal(text_of(job, "state"))) return job;
  auto told = get_job(context, &call.interrupt, id, {.told = true});
  if (call.interrupt.triggered()) return given_up();
  return told ? std::move(*told) : std::move(job);
}

// One connection waits, a second at a time, on the first job that can still move; the others are
// looked at in between. So a wait on twenty jobs costs twenty small requests a second and no
// threads, and wakes within a second.
Result<std::vector<json::object>> wait_for_any(const ToolContext& context, ToolCall& call,
                                               std::vector<json::object> before,
                                               std::int64_t deadline_ms) {
  std::vector<json::object> now = before;
  const auto live = [](const json::object& job) { return !is_terminal(text_of(job, "state")); };
  const auto first = std::find_if(before.begin(), before.end(), live);
  if (first == before.end()) return now;
  const auto first_index = static_cast<std::size_t>(first - before.begin());
  const ProgressReporter reporter(context, call, text_of(*first, "job_id"));
  Losses losses;
  for (;;) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!live(before[i])) continue;
      const double left_s = static_cast<double>(deadline_ms - context.clock.steady_ms()) / 1000;
      if (left_s <= 0) return now;
      client::JobLook look{.told = true};
      if (i == first_index)
        look = {.wait_s = std::min(left_s, 1.0), .seen = &before[i], .told = true};
      auto job = get_job(context, &call.interrupt, text_of(before[i], "job_id"), look);
      if (call.interrupt.triggered()) return given_up();
      if (!job && !losses.passing(job.error(), call.interrupt)) return fail(job.error());
      if (!job) continue;
      losses.over();
      now[i] = std::move(*job);
    }
    for (std::size_t i = 0; i < before.size(); ++i)
      if (client::has_moved(before[i], now[i])) return now;
  }
}

bool is_terminal(std::string_view state) {
  constexpr std::array<std::string_view, 6> kTerminal{"completed", "incomplete",  "failed",
                                                      "cancelled", "interrupted", "expired"};
  return std::find(kTerminal.begin(), kTerminal.end(), state) != kTerminal.end();
}

std::string text_of(const json::object& envelope, std::string_view key) {
  const json::value* v = field(envelope, key);
  return v && v->is_string() ? std::string(v->get_string()) : std::string();
}

double number_of(const json::object& envelope, std::string_view key, double fallback) {
  const json::value* v = field(envelope, key);
  if (!v) return fallback;
  if (v->is_int64()) return static_cast<double>(v->get_int64());
  if (v->is_uint64()) return static_cast<double>(v->get_uint64());
  return v->is_double() ? v->get_double() : fallback;
}

std::int64_t whole_of(const json::object& envelope, std::string_view key, std::int64_t fallback) {
  return static_cast<std::int64_t>(number_of(envelope, key, static_cast<double>(fallback)));
}

bool flag_of(const json::object& envelope, std::string_view key) {
  const json::value* v = field(envelope, key);
  return v && v->is_bool() && v->get_bool();
}

const json::object& object_of(const json::object& envelope, std::string_view key) {
  static const json::object kEmpty;
  const json::value* v = field(envelope, key);
  return v && v->is_object() ? v->get_object() : kEmpty;
}

}  // namespace ponder::mcp
