#pragma once
// Looks for the caller's stop strings in a text that comes in pieces, and holds back what could
// still become one. One per output stream; not thread-safe.
#include <string>
#include <string_view>
#include <vector>

namespace ponder {

class StopStrings {
 public:
  /// Empty strings are ignored.
  explicit StopStrings(std::vector<std::string> stops);

  /// More text. Returns what is now certain not to belong to a stop string; after a hit, the text
  /// before the one that ended first, and from then on nothing.
  std::string push(std::string_view text);
  /// The text is over: what was held back.
  std::string flush();
  bool hit() const { return hit_; }

 private:
  std::vector<std::string> stops_;
  std::string held_;
  bool hit_ = false;
};

}  // namespace ponder
