// Server-sent events as a client reads them, cut anywhere; and what the daemon writes comes back.
#include <vector>

#include "clients/cpp/sse_reader.h"
#include "daemon/http/exchange.h"
#include "engine/base/check.h"
#include "tests/fuzz/choices.h"

using namespace ponder;

namespace {

std::vector<client::ServerEvent> read(std::string_view bytes, std::size_t piece, std::size_t most) {
  client::SseReader reader;
  std::vector<client::ServerEvent> events;
  for (std::size_t at = 0; at < bytes.size(); at += piece)
    CHECK(reader
              .feed(bytes.substr(at, piece),
                    [&](const client::ServerEvent& event) {
                      events.push_back(event);
                      return events.size() < most;
                    })
              .has_value());
  CHECK(events.size() <= most && reader.stopped() == (events.size() == most));
  return events;
}

bool same(const client::ServerEvent& a, const client::ServerEvent& b) {
  return a.id == b.id && a.event == b.event && a.data == b.data;
}

bool is_line(std::string_view text) {
  return text.find_first_of("\r\n") == text.npos;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Choices choose(std::string_view(reinterpret_cast<const char*>(data), size));
  const std::size_t piece = 1 + choose.below(16), most = 1 + choose.below(256);
  const std::string_view stream = choose.text(size);
  const auto whole = read(stream, stream.size() + 1, most);
  const auto parts = read(stream, piece, most);
  CHECK_MSG(whole.size() == parts.size(), "pieces change the number of events");
  for (std::size_t i = 0; i < whole.size(); ++i)
    CHECK_MSG(same(whole[i], parts[i]), "pieces change an event");
  for (const client::ServerEvent& event : whole) {
    CHECK(is_line(event.id) && is_line(event.event));
    if (event.id.starts_with(' ') || event.event.starts_with(' ')) continue;  // one is the reader's
    const std::string written = daemon::sse_event(event.id, event.event, event.data);
    const auto again = read(written, piece, 2);
    CHECK_MSG(again.size() == 1 && same(again[0], event), "what is written reads otherwise");
  }
  return 0;
}
