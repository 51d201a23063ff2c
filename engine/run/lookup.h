#pragma once
// Prompt lookup: the last tokens of a sequence, found earlier in it, are likely to go on as they
// went on there. Costs no model pass, and pays where a model copies: editing a file, quoting,
// filling a form. Belongs to one sequence; one thread at a time.
#include <cstdint>
#include <span>
#include <vector>

namespace ponder::run {

class Lookup {
 public:
  /// Makes it hold exactly the first tokens of `sequence`, which only ever grows. Cheap: each
  /// token is looked at once.
  void follow(std::span<const std::int32_t> sequence);

  /// Up to `most` tokens that followed the latest, longest earlier occurrence of the sequence's
  /// last `shortest` or more tokens (at least kKey); empty when there is none. Where they reach the
  /// end of the sequence they go on into themselves, as a period does.
  std::vector<std::int32_t> drafts(std::span<const std::int32_t> sequence, std::size_t shortest,
                                   std::size_t most) const;

  static constexpr std::size_t kKey = 4;

 private:
  static std::size_t slot_of(const std::int32_t* key, std::size_t slots);
  void rebuild(std::span<const std::int32_t> sequence, std::size_t slots);
  void enter(std::span<const std::int32_t> sequence, std::size_t end);

  /// Places where a run of kKey tokens ends: the latest of each hash, and the one before of the
  /// same hash at each place. 0: none.
  std::vector<std::uint32_t> latest_, before_;
};

}  // namespace ponder::run
