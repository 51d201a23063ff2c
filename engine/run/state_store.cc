#include "engine/run/state_store.h"

#include <algorithm>
#include <set>

#include "engine/base/check.h"

namespace ponder::run {

using models::KvPage;
using models::Snapshot;

/// A piece of token sequence between two branchings, states or pins.
struct StateStore::Node {
  Node* parent = nullptr;
  std::vector<std::int32_t> edge = {};
  std::int64_t depth = 0;  ///< tokens from the root to the end of `edge`
  std::map<std::int32_t, std::unique_ptr<Node>> children = {};
  std::shared_ptr<const Snapshot> device = {}, host = {};
  bool lost = false;  ///< it had a state that was dropped
  int pins = 0;
  std::uint64_t used = 0;

  bool holds() const { return device || host; }
  std::shared_ptr<const Snapshot>& in(Place place) {
    return place == Place::device ? device : host;
  }
  const std::shared_ptr<const Snapshot>& in(Place place) const {
    return place == Place::device ? device : host;
  }
};

namespace {

/// What a snapshot costs besides its pages: its state, and the list of pages itself.
std::uint64_t own_bytes(const Snapshot& snapshot) {
  constexpr std::uint64_t kBase = 512;
  return snapshot.own_bytes() + snapshot.pages().size() * sizeof(std::shared_ptr<const KvPage>) +
         kBase;
}

std::size_t same_prefix(std::span<const std::int32_t> a, std::span<const std::int32_t> b) {
  const std::size_t n = std::min(a.size(), b.size());
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<long>(n), b.begin()).first - a.begin());
}

}  // namespace

StateStore::StateStore(StateStoreOptions options, ToHost to_host)
    : options_(options), to_host_(std::move(to_host)), root_(std::make_unique<Node>()) {
  device_.limit = options.device_bytes;
  host_.limit = options.host_bytes;
}

/// Leaf by leaf: a conversation may be a chain of thousands of nodes, too deep for destructors
/// that call each other.
StateStore::~StateStore() {
  std::vector<std::unique_ptr<Node>> left;
  left.push_back(std::move(root_));
  while (!left.empty()) {
    const std::unique_ptr<Node> node = std::move(left.back());
    left.pop_back();
    for (auto& [first, child] : node->children)
      left.push_back(std::move(child));
    node->children.clear();
  }
}

StateStore::Found StateStore::find(std::span<const std::int32_t> ids) {
  Found found;
  if (!options_.enabled()) {
    found.miss_reason = miss::store_off;
    return found;
  }
  const auto size = static_cast<std::int64_t>(ids.size());
  Node* at = root_.get();
  Node* best = nullptr;
  std::int64_t lost = 0;
  bool left_inside = false;  // in the middle of an edge
  while (true) {
    if (at->depth > 0 && at->depth < size) {
      if (at->holds()) best = at;
      if (at->lost) lost = at->depth;
    }
    found.common = at->depth;
    const auto rest = ids.subspan(static_cast<std::size_t>(at->depth));
    if (rest.empty()) break;
    const auto next = at->children.find(rest.front());
    if (next == at->children.end()) {
      left_inside = !at->children.empty();
      break;
    }
    const std::size_t same = same_prefix(next->second->edge, rest);
    if (same < next->second->edge.size()) {
      found.common = at->depth + static_cast<std::int64_t>(same);
      left_inside = true;
      break;
    }
    at = next->second.get();
  }
  if (found.common > 0 && found.common < size && left_inside) found.diverged_at = found.common;
  if (best) {
    best->used = ++clock_;
    found.snapshot = best->device ? best->device : best->host;
    found.path = best->device ? "device" : "host";
  }
  found.miss_reason = reason(found, std::min(found.common, size - 1), best ? best->depth : 0, lost);
  return found;
}

const char* StateStore::reason(const Found& found, std::int64_t usable, std::int64_t got,
                               std::int64_t lost) const {
  if (found.common == 0) return miss::cold;
  if (usable - got < kNear) return found.diverged_at ? miss::diverged : miss::none;
  if (lost > got) return miss::evicted;
  return got == 0 ? miss::short_prompt : miss::no_state;
}

StateStore::Node* StateStore::exact(std::span<const std::int32_t> ids) const {
  Node* at = root_.get();
  while (at->depth < static_cast<std::int64_t>(ids.size())) {
    const auto rest = ids.subspan(static_cast<std::size_t>(at->depth));
    const auto next = at->children.find(rest.front());
    if (next == at->children.end()) return nullptr;
    if (same_prefix(next->second->edge, rest) < next->second->edge.size()) return nullptr;
    at = next->second.get();
  }
  return at;
}

/// Makes the node of exactly `ids`.
StateStore::Node& StateStore::insert(std::span<const std::int32_t> ids) {
  Node* at = root_.get();
  while (at->depth < static_cast<std::int64_t>(ids.size())) {
    const auto rest = ids.subspan(static_cast<std::size_t>(at->depth));
    const auto next = at->children.find(rest.front());
    if (next == at->children.end()) {
      auto leaf = std::make_unique<Node>();
      leaf->parent = at;
      leaf->edge.assign(rest.begin(), rest.end());
      leaf->depth = static_cast<std::int64_t>(ids.size());
      leaf->used = clock_;
      tokens_ += rest.size();
      Node& made = *leaf;
      at->children.emplace(rest.front(), std::move(leaf));
      return made;
    }
    Node& child = *next->second;
    const std::size_t same = same_prefix(child.edge, rest);
    if (same < child.edge.size()) split(child, same);
    at = at->children.find(rest.front())->second.get();
  }
  return *at;
}

/// Puts a new node above `node`, after the first `at` tokens of its edge. `node` itself stays the
/// same object: others point to it.
void StateStore::split(Node& node, std::size_t at) {
  CHECK(at > 0 && at < node.edge.size());
  auto upper = std::make_unique<Node>();
  upper->parent = node.parent;
  upper->edge.assign(node.edge.begin(), node.edge.begin() + static_cast<long>(at));
  upper->depth = node.depth - static_cast<std::int64_t>(node.edge.size() - at);
  upper->used = node.used;
  node.edge.erase(node.edge.begin(), node.edge.begin() + static_cast<long>(at));
  std::unique_ptr<Node>& slot = node.parent->children.at(upper->edge.front());
  std::unique_ptr<Node> lower = std::exchange(slot, std::move(upper));
  lower->parent = slot.get();
  const std::int32_t first = lower->edge.front();
  slot->children.emplace(first, std::move(lower));
}

bool StateStore::holds(std::span<const std::int32_t> ids) const {
  const Node* node = exact(ids);
  return node && node->device;
}

void StateStore::put(std::span<const std::int32_t> ids, std::shared_ptr<const Snapshot> snapshot) {
  CHECK(snapshot && snapshot->length() == static_cast<std::int64_t>(ids.size()));
  if (!options_.enabled() || ids.empty()) return;
  Node& node = insert(ids);
  node.used = ++clock_;
  node.lost = false;
  const Place place = snapshot->on_device() ? Place::device : Place::host;
  if (node.in(place)) remove(place, node);
  add(place, node, std::move(snapshot));
  fit(Place::device);
  fit(Place::host);
  fit_count();
  forget_old();
}

void StateStore::add(Place place, Node& node, std::shared_ptr<const Snapshot> snapshot) {
  Tier& t = tier(place);
  if (!node.holds()) holding_.push_back(&node);
  for (const std::shared_ptr<const KvPage>& page : snapshot->pages())
    if (++t.pages[page.get()] == 1) t.bytes += options_.page_bytes;
  t.bytes += own_bytes(*snapshot);
  ++t.states;
  node.in(place) = std::move(snapshot);
}

void StateStore::remove(Place place, Node& node) {
  Tier& t = tier(place);
  const std::shared_ptr<const Snapshot> gone = std::exchange(node.in(place), nullptr);
  for (const std::shared_ptr<const KvPage>& page : gone->pages()) {
    const auto count = t.pages.find(page.get());
    if (--count->second > 0) continue;
    t.pages.erase(count);
    t.bytes -= options_.page_bytes;
  }
  t.bytes -= own_bytes(*gone);
  --t.states;
  if (!node.holds()) std::erase(holding_, &node);
}

std::uint64_t StateStore::freed_by(Place place, const Node& node) const {
  const Tier& t = place == Place::device ? device_ : host_;
  const Snapshot& snapshot = *node.in(place);
  std::uint64_t bytes = own_bytes(snapshot);
  for (const std::shared_ptr<const KvPage>& page : snapshot.pages())
    if (t.pages.at(page.get()) == 1) bytes += options_.page_bytes;
  return bytes;
}

double StateStore::worth(const Node& node, std::optional<Place> place) const {
  const Node* above = node.parent;
  while (above && !above->holds())
    above = above->parent;
  const auto replayed = static_cast<double>(node.depth - (above ? above->depth : 0));
  const auto age = static_cast<double>(clock_ - node.used);
  std::uint64_t bytes = 0;
  for (const Place p : {Place::device, Place::host})
    if (node.in(p) && (!place || *place == p)) bytes += freed_by(p, node);
  return replayed / (1 + age) / static_cast<double>(std::max<std::uint64_t>(bytes, 1));
}

/// The state to give up next, of those in `place` or of all; null when only pinned ones are left.
StateStore::Node* StateStore::least_worth(std::optional<Place> place) {
  std::set<const Node*> below;  // nodes that have a state somewhere below them
  for (const Node* node : holding_)
    for (const Node* up = node->parent; up && below.insert(up).second;)
      up = up->parent;
  std::vector<const Node*> ends;
  for (const Node* node : holding_)
    if (!below.contains(node)) ends.push_back(node);
  std::sort(ends.begin(), ends.end(),
            [](const Node* a, const Node* b) { return a->used > b->used; });
  ends.resize(std::min(ends.size(), kRecentSequences));
  const std::set<const Node*> recent(ends.begin(), ends.end());

  Node* least = nullptr;
  std::pair<bool, double> least_rank;
  for (Node* node : holding_) {
    if (node->pins > 0 || (place && !node->in(*place))) continue;
    const std::pair<bool, double> rank{recent.contains(node), worth(*node, place)};
    if (least && !(rank < least_rank)) continue;
    least = node;
    least_rank = rank;
  }
  return least;
}

void StateStore::fit(Place place) {
  while (tier(place).bytes > tier(place).limit) {
    Node* node = least_worth(place);
    if (!node) return;
    if (place == Place::device) {
      demote(*node);
    } else {
      remove(Place::host, *node);
      node->lost = !node->holds();
    }
  }
}

void StateStore::fit_count() {
  while (holding_.size() > options_.most_states) {
    Node* node = least_worth({});
    if (!node) return;
    drop(*node);
  }
}

void StateStore::demote(Node& node) {
  const std::shared_ptr<const Snapshot> leaving = node.device;
  if (!node.host && own_bytes(*leaving) <= host_.limit) {
    // Without memory for a copy the state goes for good, as without a budget for one.
    if (auto copy = to_host_(*leaving)) add(Place::host, node, std::move(*copy));
  }
  remove(Place::device, node);
  node.lost = !node.holds();
  fit(Place::host);
}

void StateStore::limit_device(std::uint64_t bytes) {
  device_.limit = std::min(bytes, options_.device_bytes);
  fit(Place::device);
}

void StateStore::drop_unpinned() {
  const std::vector<Node*> all = holding_;
  for (Node* node : all)
    if (node->pins == 0) drop(*node);
}

void StateStore::remove(Node& node) {
  for (const Place place : {Place::device, Place::host})
    if (node.in(place)) remove(place, node);
}

void StateStore::drop(Node& node) {
  remove(node);
  node.lost = true;
}

void StateStore::pin(std::span<const std::int32_t> ids) {
  if (!ids.empty()) ++insert(ids).pins;
}

void StateStore::unpin(std::span<const std::int32_t> ids) {
  Node* node = ids.empty() ? nullptr : exact(ids);
  if (!node || node->pins == 0) return;
  --node->pins;
  fit(Place::device);
  fit(Place::host);
  fit_count();
}

void StateStore::remove(std::span<const std::int32_t> ids) {
  Node* node = ids.empty() ? nullptr : exact(ids);
  if (node && node->pins == 0) remove(*node);
}

/// Ids that lead to no state any more are kept up to a bound, the last used ones longest.
void StateStore::forget_old() {
  if (tokens_ <= options_.remembered_tokens) return;
  std::size_t held = 0;  // by paths to states
  std::set<const Node*> on_path;
  for (const Node* node : holding_)
    for (const Node* up = node; up && on_path.insert(up).second; up = up->parent)
      held += up->edge.size();
  while (tokens_ - held > options_.remembered_tokens) {
    Node* oldest = nullptr;
    std::vector<Node*> left{root_.get()};
    while (!left.empty()) {
      Node* node = left.back();
      left.pop_back();
      for (const auto& [first, child] : node->children)
        left.push_back(child.get());
      const bool ghost = node->parent && node->children.empty() && !node->holds();
      if (ghost && node->pins == 0 && (!oldest || node->used < oldest->used)) oldest = node;
    }
    if (!oldest) return;
    tokens_ -= oldest->edge.size();
    oldest->parent->children.erase(oldest->edge.front());
  }
}

StateStore::Stats StateStore::stats() const {
  return {device_.states, host_.states, device_.bytes, host_.bytes, tokens_};
}

}  // namespace ponder::run
