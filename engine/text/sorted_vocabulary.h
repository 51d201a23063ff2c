#pragma once
// A vocabulary in the order of its bytes: neighbours share their heads, so that a walk through it
// reads each head once, and what is refused at one head is left out at a jump. Control tokens,
// tags and end tokens are not in it. Immutable.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace ponder::text {

class Tokenizer;
using TokenId = std::int32_t;

class SortedVocabulary {
 public:
  explicit SortedVocabulary(const Tokenizer& tokenizer);

  struct Entry {
    std::string_view bytes;  ///< the tokenizer's
    TokenId id;
    std::uint32_t shared;  ///< bytes in common with the entry before
  };
  std::span<const Entry> entries() const { return entries_; }
  bool contains(TokenId id) const { return known_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<Entry> entries_;
  std::vector<bool> known_;
};

}  // namespace ponder::text
