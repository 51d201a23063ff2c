#pragma once
// Byte-pair merging inside one piece of text: from the tokens of single bytes, the adjacent pair
// of lowest rank is merged again and again, the leftmost first. O(n log n) in the piece: a heap of
// candidate pairs over a linked list of symbols. Const after construction and thread-safe.
#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace ponder::text {

class BytePairEncoding {
 public:
  /// `byte_ids[b]` is the token of byte b; -1: it has none, and the byte is left out.
  explicit BytePairEncoding(const std::array<std::int32_t, 256>& byte_ids) : byte_ids_(byte_ids) {}

  void reserve(std::size_t merges) { merges_.reserve(merges); }
  /// Merges are ranked in the order in which they are added; of two for one pair the first holds.
  void add_merge(std::int32_t left, std::int32_t right, std::int32_t merged);

  /// Appends the ids of `piece` to `out`.
  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t merged;
  };
  struct Mix {
    std::size_t operator()(std::uint64_t key) const {
      key *= 0x9E3779B97F4A7C15u;
      return static_cast<std::size_t>(key ^ (key >> 32));
    }
  };
  const Merge* find(std::int32_t left, std::int32_t right) const;

  std::array<std::int32_t, 256> byte_ids_;
  std::unordered_map<std::uint64_t, Merge, Mix> merges_;
  std::int32_t next_rank_ = 0;
};

}  // namespace ponder::text
