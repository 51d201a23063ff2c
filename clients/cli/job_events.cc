#include "clients/cli/job_events.h"

#include <chrono>
#include <optional>
#include <thread>
#include <utility>

#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"
#include "clients/cpp/server_error.h"

namespace ponder::cli {
namespace {
constexpr int kReconnectsMax = 5;  // in a row without an event between them
constexpr auto kReconnectPause = std::chrono::milliseconds(300);

/// Whether it is the way of a daemon that stops or starts.
bool may_pass(ErrorCode code) {
  return code == ErrorCode::stream_lost || code == ErrorCode::unreachable ||
         code == ErrorCode::interrupted || code == ErrorCode::loading;
}
}  // namespace

Result<json::object> follow_job(
    client::DaemonClient& daemon, const std::string& id,
    const std::function<void(std::string_view kind, const std::string& text)>& on_text,
    client::Interrupt& interrupt) {
  std::string last = "0";
  std::optional<json::object> end;
  std::optional<Error> told_error;
  int breaks = 0;
  const auto take = [&](const client::ServerEvent& event) {
    auto data = parse_json_object(event.data);
    if (!data) return true;  // a newer daemon may send other things
    if (event.event == "error") {
      told_error = client::decode_error(500, std::move(*data), -1);
      return false;
    }
    breaks = 0;
    if (!event.id.empty()) last = event.id;
    if (event.event == "answer" || event.event == "reasoning")
      on_text(event.event, text_at(*data, "text"));
    if (event.event != "end") return true;
    end = std::move(*data);
    return false;
  };
  for (;;) {
    const std::string target = job_target(id, "/events?after=" + client::percent_encode(last));
    const auto read = daemon.stream(target, take, &interrupt);
    if (end) return std::move(*end);
    Error error{ErrorCode::stream_lost, "the event stream ends without an end"};
    if (told_error)
      error = *std::exchange(told_error, std::nullopt);
    else if (!read)
      error = read.error();
    if (!may_pass(error.code) || ++breaks > kReconnectsMax) return fail(std::move(error));
    if (interrupt.triggered()) return fail(ErrorCode::cancelled, "interrupted");
    std::this_thread::sleep_for(kReconnectPause);
  }
}

}  // namespace ponder::cli
