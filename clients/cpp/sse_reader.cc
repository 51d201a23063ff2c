#include "clients/cpp/sse_reader.h"

namespace ponder::client {
namespace {
constexpr std::size_t kEventBytesMax = 16u << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
}  // namespace

Result<void> SseReader::feed(std::string_view bytes,
                             const std::function<bool(const ServerEvent&)>& on_event) {
  for (const char c : bytes) {
    if (stopped_) return {};
    if (c == '\n' && after_cr_) {
      after_cr_ = false;
      continue;
    }
    after_cr_ = c == '\r';
    if (c == '\n' || c == '\r') {
      take_line(on_event);
      line_.clear();
      continue;
    }
    line_ += c;
    if (line_.size() + event_.data.size() > kEventBytesMax)
      return fail(ErrorCode::too_large, "the daemon sent an event that is too large");
  }
  return {};
}

void SseReader::take_line(const std::function<bool(const ServerEvent&)>& on_event) {
  std::string_view line = line_;
  if (at_start_ && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
  at_start_ = false;
  if (line.empty()) {
    if (has_data_) {
      event_.data.pop_back();  // the newline after the last data line
      if (event_.event.empty()) event_.event = "message";
      stopped_ = !on_event(event_);
    }
    event_.event.clear();
    event_.data.clear();
    has_data_ = false;
    return;
  }
  const std::size_t colon = line.find(':');
  if (colon == 0) return;  // a comment
  const std::string_view field = line.substr(0, colon);
  std::string_view value;
  if (colon != std::string_view::npos) value = line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "data") {
    event_.data.append(value).append("\n");
    has_data_ = true;
  } else if (field == "event") {
    event_.event = value;
  } else if (field == "id" && value.find('\0') == std::string_view::npos) {
    event_.id = value;
  }
}

}  // namespace ponder::client
