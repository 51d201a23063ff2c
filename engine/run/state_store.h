#pragma once
// Sequence states that the next prompt may go on from, keyed by the tokens that led to them. Two
// tiers, each with its own byte budget: on the device, and copies in host memory. A compressed
// trie of token ids holds them, so a hit is a comparison of every id, never of a hash alone.
//
// What is dropped first. The worth of a state is the tokens that would be read again without it
// (down to the nearest state above it) times how lately it was used, by the bytes it alone holds.
// The deepest states of the kRecentSequences conversations used last go after everything else, so
// that conversations do not push out each other while there is something between. From the device
// a state moves to host memory; from there it goes for good, and only its ids are remembered for a
// while, to be able to say so. Pinned states stay.
//
// Owned by the engine's thread.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/models/model.h"

namespace ponder::run {

struct StateStoreOptions {
  std::uint64_t device_bytes = 0;
  std::uint64_t host_bytes = 0;
  std::uint64_t page_bytes = 0;             ///< of one KvPage
  std::size_t most_states = 1024;           ///< in both tiers
  std::size_t remembered_tokens = 1 << 20;  ///< ids of dropped states, 4 bytes each
  bool enabled() const { return device_bytes > 0 || host_bytes > 0; }
};

/// Why less than the common part of a prompt was there to go on from. The words are for people
/// and scripts alike; the list is closed.
namespace miss {
inline constexpr const char* none = "";              ///< all of it was (but for a few tokens)
inline constexpr const char* cold = "cold";          ///< nothing like it was read before
inline constexpr const char* diverged = "diverged";  ///< all of the common part; it ends early
inline constexpr const char* no_state = "no_state_before_divergence";    ///< none near its end
inline constexpr const char* short_prompt = "shorter_than_first_state";  ///< none in it at all
inline constexpr const char* evicted = "evicted";      ///< there was one, and memory was needed
inline constexpr const char* store_off = "store_off";  ///< both budgets are 0
}  // namespace miss

class StateStore {
 public:
  static constexpr std::size_t kRecentSequences = 8;
  /// A state this near to the end of the common part is as good as one at its end.
  static constexpr std::int64_t kNear = 16;

  /// Makes a host copy of a snapshot (models::Model::to_host).
  using ToHost =
      std::function<Result<std::shared_ptr<const models::Snapshot>>(const models::Snapshot&)>;
  StateStore(StateStoreOptions options, ToHost to_host);
  ~StateStore();

  struct Found {
    std::shared_ptr<const models::Snapshot> snapshot = {};  ///< null: none
    std::string path = "cold";                              ///< cold, device, host
    /// Length of the longest prefix of the prompt that was seen before, with a state or without.
    std::int64_t common = 0;
    /// Where the prompt leaves what was seen before; unset where it only goes on after it, is
    /// whole within it, or shares nothing with it.
    std::optional<std::int64_t> diverged_at = {};
    std::string miss_reason = {};  ///< from `miss`
  };
  /// The deepest state whose ids are a prefix of `ids`, shorter than them: one row must be left to
  /// compute. Counts as a use.
  Found find(std::span<const std::int32_t> ids);

  /// Whether put() of these ids would bring nothing new: a state is on the device already.
  bool holds(std::span<const std::int32_t> ids) const;
  /// Keeps `snapshot`, the state after exactly `ids` (its length() of them), in the tier it is in;
  /// what no longer fits moves or goes. The snapshot itself may go at once where it fits nowhere.
  void put(std::span<const std::int32_t> ids, std::shared_ptr<const models::Snapshot> snapshot);
  /// A pinned state is neither moved nor dropped. Pins count; ids without a state are remembered
  /// as pinned too.
  void pin(std::span<const std::int32_t> ids);
  void unpin(std::span<const std::int32_t> ids);
  /// Lets the state at exactly `ids` go, as if it had never been put; a pinned one stays.
  void remove(std::span<const std::int32_t> ids);
  /// Another budget for the device, at most that of the options; what no longer fits moves or goes.
  void limit_device(std::uint64_t bytes);
  /// Drops every state that is not pinned, from both tiers: memory is needed at once.
  void drop_unpinned();

  struct Stats {
    std::size_t device_states = 0;
    std::size_t host_states = 0;
    std::uint64_t device_bytes = 0;
    std::uint64_t host_bytes = 0;
    std::size_t remembered_tokens = 0;  ///< ids in the trie, with states and without
  };
  Stats stats() const;

 private:
  struct Node;
  /// One tier: which snapshots hold which pages, and what they come to in bytes.
  struct Tier {
    std::uint64_t limit = 0;
    std::uint64_t bytes = 0;
    std::size_t states = 0;
    std::unordered_map<const models::KvPage*, int> pages = {};
  };
  enum class Place { device, host };

  Tier& tier(Place place) { return place == Place::device ? device_ : host_; }
  Node& insert(std::span<const std::int32_t> ids);
  Node* exact(std::span<const std::int32_t> ids) const;
  void split(Node& node, std::size_t at);
  void add(Place place, Node& node, std::shared_ptr<const models::Snapshot> snapshot);
  void remove(Place place, Node& node);
  void remove(Node& node);
  /// What `node` alone holds in `place`: what removing it gives back.
  std::uint64_t freed_by(Place place, const Node& node) const;
  void fit(Place place);
  void fit_count();
  Node* least_worth(std::optional<Place> place);
  double worth(const Node& node, std::optional<Place> place) const;
  void demote(Node& node);
  void drop(Node& node);
  void forget_old();
  const char* reason(const Found& found, std::int64_t usable, std::int64_t got,
                     std::int64_t lost) const;

  const StateStoreOptions options_;
  const ToHost to_host_;
  std::unique_ptr<Node> root_;
  std::vector<Node*> holding_;  ///< nodes with a state in any tier
  Tier device_, host_;
  std::size_t tokens_ = 0;   ///< ids in the trie
  std::uint64_t clock_ = 0;  ///< one tick a use
};

}  // namespace ponder::run
