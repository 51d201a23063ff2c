#pragma once
// Finds the texts of added tokens in a text: from left to right, the longest at each place.
// Const after the last add() and thread-safe.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer.h"

namespace ponder::text {

class SpecialTokens {
 public:
  SpecialTokens() : nodes_(1) {}

  /// Empty texts and texts already there are ignored.
  void add(std::string_view text, TokenId id);
  /// The id of exactly this text, or -1.
  TokenId find(std::string_view text) const;
  std::vector<SpecialMatch> matches(std::string_view text) const;

 private:
  struct Node {  // of a trie over bytes
    TokenId id = -1;
    std::vector<std::pair<unsigned char, std::uint32_t>> children;  // sorted by byte
  };
  const Node* child(const Node& node, unsigned char byte) const;

  std::vector<Node> nodes_;
};

}  // namespace ponder::text
