#pragma once
// Following a job's event stream to its end, also across a restart of the daemon.
#include <functional>
#include <string>
#include <string_view>

#include "clients/cpp/daemon_client.h"

namespace ponder::cli {

/// Calls `on_text` with the kind ("answer" or "reasoning") and text of each piece from the first
/// on, until the job has ended; its final envelope. A stream that breaks is taken up again after
/// the last event seen. Errors: job_unknown and the like, `cancelled` by the interrupt, the
/// stream's own error when it keeps breaking.
Result<json::object> follow_job(
    client::DaemonClient& daemon, const std::string& id,
    const std::function<void(std::string_view kind, const std::string& text)>& on_text,
    client::Interrupt& interrupt);

}  // namespace ponder::cli
