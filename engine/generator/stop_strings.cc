#include "engine/generator/stop_strings.h"

#include <algorithm>
#include <utility>

namespace ponder {

StopStrings::StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {
  std::erase_if(stops_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopStrings::push(std::string_view text) {
  if (hit_) return {};
  held_ += text;
  // The one that ends first wins, then the longest: as if the text came byte by byte.
  std::size_t first = 0;
  std::size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const std::size_t at = held_.find(stop);
    if (at == std::string::npos || at + stop.size() > end) continue;
    first = at + stop.size() < end ? at : std::min(first, at);
    end = at + stop.size();
  }
  if (end != std::string::npos) {
    hit_ = true;
    std::string out = held_.substr(0, first);
    held_.clear();
    return out;
  }
  // The longest end of the text that begins some stop string stays.
  std::size_t keep = 0;
  for (const std::string& stop : stops_) {
    for (std::size_t n = std::min(stop.size() - 1, held_.size()); n > keep; --n) {
      if (held_.compare(held_.size() - n, n, stop, 0, n) == 0) keep = n;
    }
  }
  std::string out = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return out;
}

std::string StopStrings::flush() {
  return std::exchange(held_, {});
}

}  // namespace ponder
