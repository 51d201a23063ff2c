#include "engine/text/jinja/marked_text.h"

#include <algorithm>

namespace ponder::text::jinja {

void MarkedText::append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  const bool own = origin == Origin::template_source;
  if (bytes_.empty()) {
    first_ = own;
    flips_.clear();
  } else if (last() != own) {
    flips_.push_back(bytes_.size());
  }
  bytes_.append(bytes);
}

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end) {
  auto flip = std::upper_bound(other.flips_.begin(), other.flips_.end(), begin);
  bool own = other.first_ != ((flip - other.flips_.begin()) % 2 == 1);
  const std::string_view all = other.bytes_;
  while (begin < end) {
    const std::size_t stop = flip == other.flips_.end() ? end : std::min(end, *flip++);
    append(all.substr(begin, stop - begin), origin_of(own));
    begin = stop;
    own = !own;
  }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
  MarkedText part;
  part.append(*this, begin, end);
  return part;
}

}  // namespace ponder::text::jinja
