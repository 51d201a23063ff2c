// The text form of server-sent events (WHATWG HTML, section "Server-sent events").
#include "daemon/http/exchange.h"

namespace ponder::daemon {

std::string sse_event(std::string_view id, std::string_view event, std::string_view data) {
  std::string out;
  out.reserve(data.size() + 64);
  if (!id.empty()) out.append("id: ").append(id).append("\n");
  if (!event.empty()) out.append("event: ").append(event).append("\n");
  while (true) {
    const std::size_t end = data.find('\n');
    out.append("data: ").append(data.substr(0, end)).append("\n");
    if (end == data.npos) break;
    data.remove_prefix(end + 1);
  }
  out += '\n';
  return out;
}

}  // namespace ponder::daemon
