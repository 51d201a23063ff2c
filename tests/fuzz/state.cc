// The store of sequence states under any order of use, against a plain list of all that was ever
// put there: what is found is the deepest state that is a prefix and continues as a cold sequence
// does, budgets hold, pinned states stay.
#include <map>
#include <set>

#include "engine/base/check.h"
#include "engine/run/state_store.h"
#include "tests/fuzz/choices.h"
#include "tests/unit/run/fake_model.h"

using namespace ponder;
using fuzz::Choices;
using models::Snapshot;
using Ids = std::vector<std::int32_t>;

namespace {

constexpr std::int32_t kVocab = 16;
constexpr std::size_t kMaxIds = 300;  // pages of the fake model hold 64
constexpr std::size_t kMaxSteps = 150;

bool starts_with(const Ids& ids, const Ids& head) {
  return head.size() <= ids.size() && std::equal(head.begin(), head.end(), ids.begin());
}

/// What the store charges for a snapshot that has no pages, and for each entry of its list.
std::uint64_t cost_of(const Snapshot& snapshot) {
  return snapshot.own_bytes() + 512 + snapshot.pages().size() * sizeof(void*) * 2;
}

class Game {
 public:
  explicit Game(Choices& choose)
      : choose_(choose), model_({.vocab = kVocab, .n_ctx = 1024, .drafts = false}) {
    const std::uint64_t unit = 4096;  // a state of two pages comes to about one
    options_.device_bytes = choose.below(24) * unit;
    options_.host_bytes = choose.below(24) * unit;
    options_.page_bytes = model_.page_bytes();
    options_.most_states = choose.yes() ? 1024 : 1 + choose.below(12);
    remembers_all_ = choose.yes();
    options_.remembered_tokens = remembers_all_ ? std::size_t{1} << 20 : choose.byte() * 4;
    store_ = std::make_unique<run::StateStore>(
        options_, [this](const Snapshot& snapshot) { return copy(snapshot); });
  }

  void play() {
    for (std::size_t step = 0; step < kMaxSteps && !choose_.empty(); ++step) {
      put_ = false;
      switch (choose_.below(12)) {
        case 0:
          pin(known_ids());
          break;
        case 1:
          unpin();
          break;
        case 2:
          no_memory_ = choose_.below(4) == 0;
          break;
        case 3:
          if (choose_.below(4) == 0) drop();
          break;
        case 4:
        case 5:
        case 6:
          static_cast<void>(find(some_ids()));
          break;
        case 7:
          put(some_ids(), true);
          break;
        default:
          put(some_ids(), false);
      }
      judge();
    }
  }

 private:
  /// All that was put at one place in the trie. A state that only the store held is gone when the
  /// store has let it go.
  struct Entry {
    std::weak_ptr<const Snapshot> device = {}, host = {};
    int pins = 0;
    bool pinned_device = false, pinned_host = false;  // was there when it was pinned, or since

    bool holds() const { return !device.expired() || !host.expired(); }
  };

  Result<std::shared_ptr<const Snapshot>> copy(const Snapshot& snapshot) {
    if (no_memory_) return fail(ErrorCode::out_of_memory, "no memory");
    auto made = model_.to_host(snapshot);
    const auto entry = std::find_if(list_.begin(), list_.end(), [&](const auto& e) {
      return e.second.device.lock().get() == &snapshot;
    });
    CHECK_MSG(entry != list_.end(), "a copy of a state that the store does not hold");
    CHECK_MSG(entry->second.pins == 0, "a pinned state moves");
    entry->second.host = *made;
    return made;
  }

  Ids known_ids() {
    if (list_.empty()) return some_ids();
    auto at = list_.begin();
    std::advance(at, static_cast<long>(choose_.byte() % list_.size()));
    return at->first;
  }
  /// A head of what was there before, and more; few different ids, so that they branch and meet.
  Ids some_ids() {
    Ids ids;
    if (!list_.empty() && choose_.below(8) > 0) {
      auto at = list_.begin();
      std::advance(at, static_cast<long>(choose_.byte() % list_.size()));
      ids = at->first;
      if (choose_.yes()) ids.resize(choose_.byte() % (ids.size() + 1));
    }
    const std::size_t more = choose_.yes() ? choose_.below(4) : choose_.below(70);
    const auto id = static_cast<std::int32_t>(choose_.below(3));
    for (std::size_t i = 0; i < more && ids.size() < kMaxIds; ++i)
      ids.push_back(static_cast<std::int32_t>((static_cast<std::size_t>(id) + i / 8) % 3));
    return ids;
  }

  static Ids head(const Ids& ids, std::int64_t n) {
    return Ids(ids.begin(), ids.begin() + static_cast<long>(n));
  }

  /// The numbers that come after `id`.
  std::vector<float> logits_after(models::SequenceState& sequence, std::int32_t id) {
    std::vector<float> logits(kVocab);
    CHECK(model_.forward(sequence, std::span(&id, 1), 1, logits).has_value());
    return logits;
  }

  std::shared_ptr<const Snapshot> find(const Ids& ids) {
    std::size_t deepest = 0, common = 0;
    for (const auto& [known, entry] : list_) {
      if (entry.holds() && known.size() < ids.size() && starts_with(ids, known))
        deepest = std::max(deepest, known.size());
      const auto parts = std::mismatch(known.begin(), known.end(), ids.begin(), ids.end()).first;
      common = std::max(common, static_cast<std::size_t>(parts - known.begin()));
    }
    const run::StateStore::Found found = store_->find(ids);
    const auto length = found.snapshot ? found.snapshot->length() : 0;
    CHECK_MSG(length == static_cast<std::int64_t>(deepest), "not the deepest state");
    static const std::set<std::string> kReasons{
        run::miss::none,    run::miss::cold,         run::miss::diverged, run::miss::no_state,
        run::miss::evicted, run::miss::short_prompt, run::miss::store_off};
    CHECK_MSG(kReasons.contains(found.miss_reason), found.miss_reason);
    CHECK((found.miss_reason == run::miss::store_off) == !options_.enabled());
    if (!options_.enabled()) return nullptr;
    CHECK(found.common >= length && found.common <= static_cast<std::int64_t>(common));
    CHECK_MSG(!remembers_all_ || found.common == static_cast<std::int64_t>(common),
              "forgotten too early");
    CHECK(!found.diverged_at || *found.diverged_at == found.common);
    if (!found.snapshot) {
      CHECK(found.path == "cold");
      return nullptr;
    }
    const Entry& entry = list_.at(head(ids, length));
    CHECK(found.path == (entry.device.expired() ? "host" : "device"));
    const auto warm = model_.new_sequence();
    CHECK(model_.restore(*warm, *found.snapshot).has_value());
    const auto cold = model_.new_sequence();
    CHECK(model_.forward(*cold, head(ids, length), 0, {}).has_value());
    const std::int32_t next = ids[static_cast<std::size_t>(length)];
    CHECK_MSG(logits_after(*warm, next) == logits_after(*cold, next), "another state");
    return found.snapshot;
  }

  /// As the engine does it: goes on from what is found, and keeps where it ends.
  void put(const Ids& ids, bool on_host) {
    if (ids.empty()) return;
    const auto sequence = model_.new_sequence();
    if (const auto from = find(ids)) CHECK(model_.restore(*sequence, *from).has_value());
    const std::span<const std::int32_t> rest =
        std::span(ids).subspan(static_cast<std::size_t>(sequence->length()));
    CHECK(model_.forward(*sequence, rest, 0, {}).has_value());
    std::shared_ptr<const Snapshot> snapshot = model_.save(*sequence).value();
    if (on_host) snapshot = model_.to_host(*snapshot).value();
    if (options_.enabled()) {
      Entry& entry = list_[ids];
      (on_host ? entry.host : entry.device) = snapshot;
      put_ = true;
    }
    store_->put(ids, std::move(snapshot));
  }

  void pin(const Ids& ids) {
    if (ids.empty()) return;
    store_->pin(ids);
    ++list_[ids].pins;
    pinned_.push_back(ids);
  }

  void unpin() {
    if (pinned_.empty()) return;
    const std::size_t at = choose_.byte() % pinned_.size();
    const Ids ids = pinned_[at];
    pinned_.erase(pinned_.begin() + static_cast<long>(at));
    Entry& entry = list_.at(ids);
    if (--entry.pins == 0) entry.pinned_device = entry.pinned_host = false;
    store_->unpin(ids);
  }

  void drop() {
    store_->drop_unpinned();
    for (const auto& [ids, entry] : list_)
      CHECK_MSG(!entry.holds() || entry.pins > 0, "not dropped");
  }

  void judge() {
    std::uint64_t device = 0, host = 0;
    std::size_t on_device = 0, on_host = 0, states = 0, pinned = 0;
    std::set<const models::KvPage*> device_pages, host_pages;
    const auto add = [&](const Snapshot& snapshot, std::uint64_t& bytes, std::size_t& count) {
      bytes += cost_of(snapshot);
      for (const auto& page : snapshot.pages())
        if ((&bytes == &device ? device_pages : host_pages).insert(page.get()).second)
          bytes += options_.page_bytes;
      ++count;
    };
    bool device_pinned = true, host_pinned = true;  // all that is there
    for (auto& [ids, entry] : list_) {
      CHECK(store_->holds(ids) == !entry.device.expired());
      if (const auto s = entry.device.lock()) {
        add(*s, device, on_device);
        device_pinned = device_pinned && entry.pins > 0;
      }
      if (const auto s = entry.host.lock()) {
        add(*s, host, on_host);
        host_pinned = host_pinned && entry.pins > 0;
      }
      CHECK_MSG(!entry.pinned_device || !entry.device.expired(), "a pinned state has gone");
      CHECK_MSG(!entry.pinned_host || !entry.host.expired(), "a pinned copy has gone");
      entry.pinned_device = entry.pins > 0 && !entry.device.expired();
      entry.pinned_host = entry.pins > 0 && !entry.host.expired();
      states += entry.holds() ? 1 : 0;
      pinned += entry.holds() && entry.pins > 0 ? 1 : 0;
    }
    const run::StateStore::Stats stats = store_->stats();
    CHECK(stats.device_states == on_device && stats.host_states == on_host);
    CHECK_MSG(stats.device_bytes == device && stats.host_bytes == host, "counted otherwise");
    CHECK_MSG(device <= options_.device_bytes || device_pinned, "too much on the device");
    CHECK_MSG(host <= options_.host_bytes || host_pinned, "too much in host memory");
    CHECK_MSG(states <= std::max(options_.most_states, pinned), "too many states");
    const std::size_t held = heads_of([](const Entry& e) { return e.holds(); });
    if (remembers_all_)
      CHECK(stats.remembered_tokens == heads_of([](const Entry&) { return true; }));
    else if (put_)
      CHECK_MSG(stats.remembered_tokens <=
                    std::max(held + options_.remembered_tokens,
                             heads_of([](const Entry& e) { return e.holds() || e.pins > 0; })),
                "remembers too much");
  }

  /// Different heads of the ids of some entries: what a trie of them holds.
  template <class Some>
  std::size_t heads_of(Some some) const {
    std::size_t heads = 0;
    const Ids* before = nullptr;  // sorted: what is shared is shared with the one before
    for (const auto& [ids, entry] : list_) {
      if (!some(entry)) continue;
      heads += ids.size();
      if (before) {
        const auto parts =
            std::mismatch(ids.begin(), ids.end(), before->begin(), before->end()).first;
        heads -= static_cast<std::size_t>(parts - ids.begin());
      }
      before = &ids;
    }
    return heads;
  }

  Choices& choose_;
  test::FakeModel model_;
  run::StateStoreOptions options_;
  bool remembers_all_ = false, no_memory_ = false;
  bool put_ = false;  // this step: old ids are forgotten then
  std::map<Ids, Entry> list_;
  std::vector<Ids> pinned_;
  std::unique_ptr<run::StateStore> store_;  // gone first: it copies states as it is used
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Choices choose(std::string_view(reinterpret_cast<const char*>(data), size));
  Game(choose).play();
  return 0;
}
