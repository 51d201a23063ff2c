#include "clients/cli/job_events.h"

#include <chrono>
#include <optional>
#include <thread>

#include "clients/cli/envelope.h"
#include "clients/cli/job_ids.h"

namespace ponder::cli {
namespace {
constexpr int kReconnectsMax = 5;  // in a row without an event between them
constexpr auto kReconnectPause = std::chrono::milliseconds(300);
}  // namespace

Result<json::object> follow_job(
    client::DaemonClient& daemon, const std::string& id,
    const std::function<void(std::string_view kind, const std::string& text)>& on_text,
    client::Interrupt& interrupt) {
  std::string last = "0";
  std::optional<json::object> end;
  int breaks = 0;
  const auto take = [&](const client::ServerEvent& event) {
    breaks = 0;
    if (!event.id.empty()) last = event.id;
    auto data = parse_json_object(event.data);
    if (!data) return true;  // a newer daemon may send other things
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
    const ErrorCode code = read ? ErrorCode::stream_lost : read.error().code;
    if (code != ErrorCode::stream_lost && code != ErrorCode::unreachable) return fail(read.error());
    if (++breaks > kReconnectsMax)
      return fail(read ? Error{ErrorCode::stream_lost, "the event stream ends without an end"}
                       : read.error());
    if (interrupt.triggered()) return fail(ErrorCode::cancelled, "interrupted");
    std::this_thread::sleep_for(kReconnectPause);
  }
}

}  // namespace ponder::cli
