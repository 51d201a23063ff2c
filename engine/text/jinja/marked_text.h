#pragma once
// A string that knows which of its bytes the template wrote and which came from the caller.
// Cutting and joining keep the marks; whatever cannot follow them counts as the caller's.
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace ponder::text::jinja {

enum class Origin : bool { caller, template_source };

class MarkedText {
 public:
  MarkedText() = default;
  MarkedText(std::string bytes, Origin origin)
      : bytes_(std::move(bytes)), first_(origin == Origin::template_source) {}

  const std::string& bytes() const { return bytes_; }
  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }

  void append(std::string_view bytes, Origin origin);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  /// Bytes [begin, end) of `other`, with their marks.
  void append(const MarkedText& other, std::size_t begin, std::size_t end);
  MarkedText slice(std::size_t begin, std::size_t end) const;

  /// Calls visit(bytes, origin) for each stretch of one origin, in order.
  template <class Visit>
  void for_each_stretch(Visit visit) const {
    std::size_t begin = 0;
    bool own = first_;
    for (const std::size_t flip : flips_) {
      visit(std::string_view(bytes_).substr(begin, flip - begin), origin_of(own));
      begin = flip;
      own = !own;
    }
    if (begin < bytes_.size()) visit(std::string_view(bytes_).substr(begin), origin_of(own));
  }

 private:
  static Origin origin_of(bool own) { return own ? Origin::template_source : Origin::caller; }
  bool last() const { return first_ != (flips_.size() % 2 == 1); }

  std::string bytes_;
  bool first_ = false;              // the template wrote the first byte
  std::vector<std::size_t> flips_;  // offsets where the origin changes, rising, inside the text
};

}  // namespace ponder::text::jinja
