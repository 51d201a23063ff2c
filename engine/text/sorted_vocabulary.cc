#include "engine/text/sorted_vocabulary.h"

#include <algorithm>
#include <mutex>

#include "engine/text/tokenizer.h"

namespace ponder::text {

SortedVocabulary::SortedVocabulary(const Tokenizer& tokenizer)
    : known_(static_cast<std::size_t>(tokenizer.size())) {
  for (TokenId id = 0; id < tokenizer.size(); ++id) {
    const std::string_view bytes = tokenizer.bytes_of(id);
    if (bytes.empty() || tokenizer.is_control(id) || tokenizer.is_end(id) ||
        tokenizer.special_id(bytes) >= 0)
      continue;
    entries_.push_back({bytes, id, 0});
    known_[static_cast<std::size_t>(id)] = true;
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (std::size_t i = 1; i < entries_.size(); ++i) {
    const std::string_view a = entries_[i - 1].bytes, b = entries_[i].bytes;
    const std::size_t most = std::min(a.size(), b.size());
    std::size_t shared = 0;
    while (shared < most && a[shared] == b[shared])
      ++shared;
    entries_[i].shared = static_cast<std::uint32_t>(shared);
  }
}

const SortedVocabulary& Tokenizer::sorted() const {
  std::call_once(sorted_once_,
                 [this] { sorted_ = std::make_shared<const SortedVocabulary>(*this); });
  return *sorted_;
}

}  // namespace ponder::text
