#include "engine/run/state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ponder::run {
namespace {

using models::KvPage;
using models::Snapshot;
using Ids = std::vector<std::int32_t>;
using Pages = std::vector<std::shared_ptr<const KvPage>>;

constexpr std::uint64_t kPage = 1000, kOwn = 10000;

std::shared_ptr<const KvPage> new_page() {
  auto owner = std::make_shared<char>();
  return {owner, reinterpret_cast<const KvPage*>(owner.get())};
}

struct State final : Snapshot {
  std::int64_t count = 0;
  bool device = true;
  Pages held = {};
  std::int64_t length() const override { return count; }
  bool on_device() const override { return device; }
  std::uint64_t own_bytes() const override { return kOwn; }
  std::span<const std::shared_ptr<const KvPage>> pages() const override { return held; }
};

std::shared_ptr<const Snapshot> state(std::size_t length, Pages pages = {}) {
  auto s = std::make_shared<State>();
  s->count = static_cast<std::int64_t>(length);
  s->held = std::move(pages);
  return s;
}

/// What a state without pages comes to, and one with n pages of its own.
std::uint64_t cost(std::size_t pages = 0) {
  StateStore store({1 << 30, 0, kPage}, {});
  Pages own;
  for (std::size_t i = 0; i < pages; ++i)
    own.push_back(new_page());
  store.put(Ids{1}, state(1, own));
  return store.stats().device_bytes;
}

/// n tokens of their own: conversation c.
Ids talk(std::int32_t c, std::size_t n) {
  Ids ids(n);
  std::iota(ids.begin(), ids.end(), c * 100000);
  return ids;
}
Ids operator+(Ids a, const Ids& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
Ids first(const Ids& ids, std::size_t n) {
  return Ids(ids.begin(), ids.begin() + static_cast<long>(n));
}

class Store : public testing::Test {
 protected:
  StateStore make(std::uint64_t device, std::uint64_t host = 0) {
    StateStoreOptions o;
    o.device_bytes = device;
    o.host_bytes = host;
    o.page_bytes = kPage;
    return make(o);
  }
  StateStore make(StateStoreOptions o) {
    return StateStore(o, [this](const Snapshot& s) -> Result<std::shared_ptr<const Snapshot>> {
      ++copies;
      if (no_memory) return fail(ErrorCode::out_of_memory, "none");
      auto copy = std::make_shared<State>();
      copy->count = s.length();
      copy->device = false;
      for (const auto& page : s.pages()) {
        std::shared_ptr<const KvPage>& there = host_pages[page];
        if (!there) there = new_page();
        copy->held.push_back(there);
      }
      return copy;
    });
  }
  static void put(StateStore& store, const Ids& ids) { store.put(ids, state(ids.size())); }
  /// Length of the state found for `ids` followed by something new.
  static std::int64_t found(StateStore& store, const Ids& ids) {
    const auto f = store.find(ids + Ids{-7});
    return f.snapshot ? f.snapshot->length() : 0;
  }

  int copies = 0;
  bool no_memory = false;
  std::map<std::shared_ptr<const KvPage>, std::shared_ptr<const KvPage>> host_pages;
};

TEST_F(Store, FindsTheDeepestPrefixThatLeavesARow) {
  StateStore store = make(1 << 30);
  const Ids a = talk(1, 300);
  for (const std::size_t n : {20u, 100u, 300u})
    put(store, first(a, n));
  EXPECT_EQ(found(store, a), 300);
  EXPECT_EQ(found(store, first(a, 299)), 100);
  EXPECT_EQ(store.find(a).snapshot->length(), 100);  // not all 300: one row must be computed
  EXPECT_EQ(found(store, first(a, 99)), 20);
  EXPECT_EQ(store.find(a).path, "device");
  EXPECT_EQ(found(store, talk(2, 10)), 0);
  EXPECT_TRUE(store.holds(first(a, 100)));
  EXPECT_FALSE(store.holds(first(a, 101)));
}

TEST_F(Store, IdsMustBeEqualNotAlike) {
  StateStore store = make(1 << 30);
  Ids a = talk(1, 70);
  put(store, a);
  for (const std::size_t at : {0u, 1u, 35u, 69u}) {
    Ids other = a + Ids{5};
    other[at] += 1;
    EXPECT_EQ(store.find(other).snapshot, nullptr) << at;
  }
}

TEST_F(Store, SaysWhereAPromptPartsAndWhy) {
  StateStore store = make(1 << 30);
  const Ids a = talk(1, 500);
  auto f = store.find(a);
  EXPECT_EQ(f.miss_reason, miss::cold);
  EXPECT_EQ(f.diverged_at, std::nullopt);
  EXPECT_EQ(f.path, "cold");
  put(store, first(a, 200));
  put(store, a);

  f = store.find(a + talk(2, 10));  // goes on after it
  EXPECT_EQ(f.miss_reason, miss::none);
  EXPECT_EQ(f.diverged_at, std::nullopt);
  EXPECT_EQ(f.common, 500);

  f = store.find(first(a, 205) + talk(2, 100));
  EXPECT_EQ(f.miss_reason, miss::diverged);
  EXPECT_EQ(f.diverged_at, 205);

  f = store.find(first(a, 400) + talk(2, 100));
  EXPECT_EQ(f.miss_reason, miss::no_state);
  EXPECT_EQ(f.diverged_at, 400);
  EXPECT_EQ(f.snapshot->length(), 200);

  f = store.find(first(a, 150) + talk(2, 100));
  EXPECT_EQ(f.miss_reason, miss::short_prompt);
  EXPECT_EQ(f.diverged_at, 150);
  EXPECT_EQ(f.snapshot, nullptr);

  f = store.find(first(a, 300));  // whole within what was seen
  EXPECT_EQ(f.miss_reason, miss::no_state);
  EXPECT_EQ(f.diverged_at, std::nullopt);
}

TEST_F(Store, WithoutBudgetsItIsOff) {
  StateStore store = make(0, 0);
  put(store, talk(1, 50));
  const auto f = store.find(talk(1, 60));
  EXPECT_EQ(f.miss_reason, miss::store_off);
  EXPECT_EQ(f.snapshot, nullptr);
  EXPECT_EQ(store.stats().remembered_tokens, 0u);
}

TEST_F(Store, SharedPagesCountOnce) {
  StateStore store = make(1 << 30);
  const Ids a = talk(1, 300);
  const Pages pages{new_page(), new_page(), new_page(), new_page()};
  store.put(first(a, 128), state(128, {pages[0], pages[1]}));
  store.put(first(a, 192), state(192, {pages[0], pages[1], pages[2]}));
  store.put(first(a, 256), state(256, pages));
  const std::uint64_t all = store.stats().device_bytes;
  EXPECT_GT(all, 3 * kOwn + 4 * kPage);
  EXPECT_LT(all, 3 * kOwn + 5 * kPage + 3 * 600);
  store.put(first(a, 256), state(256, pages));  // in its own place: nothing more
  EXPECT_EQ(store.stats().device_bytes, all);
  store.drop_unpinned();
  EXPECT_EQ(store.stats().device_bytes, 0u);
}

TEST_F(Store, NeverHoldsMoreThanItsBudget) {
  std::mt19937 draw(9);
  StateStoreOptions o{20 * cost(2), 9 * cost(2), kPage};
  o.most_states = 17;
  StateStore store = make(o);
  for (int i = 0; i < 400; ++i) {
    const Ids ids = first(talk(static_cast<std::int32_t>(draw() % 9), 400), 1 + draw() % 400);
    store.put(ids, state(ids.size(), Pages(draw() % 5, new_page())));
    store.find(ids);
    const auto s = store.stats();
    ASSERT_LE(s.device_bytes, o.device_bytes);
    ASSERT_LE(s.host_bytes, o.host_bytes);
    ASSERT_LE(std::max(s.device_states, s.host_states), o.most_states);
  }
}

TEST_F(Store, BetweenStatesGoBeforeTheEndsOfTwoConversations) {
  StateStore store = make(6 * cost());
  const Ids a = talk(1, 2000), b = talk(2, 2000);
  for (std::size_t n = 100; n <= 2000; n += 100) {  // in turn, twenty states each
    put(store, first(a, n));
    put(store, first(b, n));
    ASSERT_EQ(found(store, first(a, n)), static_cast<std::int64_t>(n));
    ASSERT_EQ(found(store, first(b, n)), static_cast<std::int64_t>(n));
  }
  // One of them goes on alone: the other one's end outlives everything between.
  for (std::size_t n = 1; n <= 20; ++n) {
    put(store, a + talk(3, 50 * n));
    ASSERT_EQ(found(store, b), 2000);
  }
  EXPECT_EQ(store.stats().device_states, 6u);
}

TEST_F(Store, WhatWouldBeReadAgainDecidesBetweenTheRest) {
  StateStore store = make(3 * cost());
  const Ids a = talk(1, 1000);
  put(store, first(a, 800));  // 800 tokens stand behind it
  put(store, first(a, 820));  // only 20
  put(store, a);
  put(store, a + talk(2, 500));
  EXPECT_EQ(found(store, first(a, 830)), 800);
  const auto f = store.find(first(a, 820) + Ids{-1});
  EXPECT_EQ(f.miss_reason, miss::evicted);
}

TEST_F(Store, ABranchKeepsWhatItSharesAndBothEnds) {
  StateStore store = make(4 * cost());
  const Ids head = talk(1, 500), a = head + talk(2, 300), b = head + talk(3, 300);
  put(store, head);
  put(store, a);
  EXPECT_EQ(found(store, b), 500);
  put(store, b);
  EXPECT_EQ(found(store, a), 800);  // A, B, and A again
  EXPECT_EQ(found(store, b), 800);
  EXPECT_EQ(found(store, head + talk(4, 3)), 500);
  EXPECT_EQ(store.find(a + Ids{-1}).common, 800);
}

TEST_F(Store, OldConversationsGoInTheEnd) {
  StateStore store = make(10 * cost());
  for (std::int32_t c = 0; c < 40; ++c)
    put(store, talk(c, 100));
  for (std::int32_t c = 0; c < 40; ++c)
    EXPECT_EQ(found(store, talk(c, 100)) > 0, c >= 30) << c;
  EXPECT_EQ(store.find(talk(3, 100) + Ids{1}).miss_reason, miss::evicted);
}

TEST_F(Store, PinnedStatesStay) {
  StateStore store = make(3 * cost());
  const Ids a = talk(1, 50);
  put(store, a);
  store.pin(a);
  store.pin(a);
  store.unpin(a);
  for (std::int32_t c = 2; c < 20; ++c)
    put(store, talk(c, 500));
  store.drop_unpinned();
  EXPECT_EQ(found(store, a), 50);
  store.unpin(a);
  for (std::int32_t c = 20; c < 40; ++c)
    put(store, talk(c, 500));
  EXPECT_EQ(found(store, a), 0);
  store.unpin(a);           // one too many changes nothing
  store.unpin(talk(9, 3));  // nor does what never was
}

TEST_F(Store, StatesMoveToTheHostAndPagesAreCopiedOnce) {
  StateStore store = make(2 * cost(2), 100 * cost(2));
  const Pages shared{new_page(), new_page()};
  const Ids a = talk(1, 4000);
  for (std::size_t n = 500; n <= 4000; n += 500)
    store.put(first(a, n), state(n, shared));
  const auto s = store.stats();
  EXPECT_GE(s.host_states, 5u);
  EXPECT_LE(s.host_bytes, s.host_states * cost() + 2 * kPage + s.host_states * 100);
  const auto f = store.find(first(a, 600));
  EXPECT_EQ(f.snapshot->length(), 500);
  EXPECT_EQ(f.path, "host");
  EXPECT_FALSE(f.snapshot->on_device());
  EXPECT_FALSE(store.holds(first(a, 500)));
  EXPECT_EQ(f.miss_reason, miss::no_state);
  // Back on the device both have it; leaving again copies nothing.
  store.put(first(a, 500), state(500, shared));
  EXPECT_EQ(store.find(first(a, 510)).path, "device");
  const int before = copies;
  for (std::int32_t c = 2; c < 4; ++c)
    put(store, talk(c, 5000));
  EXPECT_LE(copies - before, 2);
  EXPECT_EQ(store.find(first(a, 510)).path, "host");
}

TEST_F(Store, TheLastPinGoneTheNumberOfStatesHolds) {
  StateStoreOptions o{1 << 30, 0, kPage};
  o.most_states = 1;
  StateStore store = make(o);
  for (const std::int32_t c : {1, 2}) {
    store.pin(talk(c, 100));
    put(store, talk(c, 100));
  }
  EXPECT_EQ(store.stats().device_states, 2u);
  store.unpin(talk(1, 100));
  EXPECT_EQ(store.stats().device_states, 1u);
  EXPECT_EQ(found(store, talk(2, 100)), 100);
}

TEST_F(Store, WithoutMemoryForACopyAStateGoes) {
  no_memory = true;
  StateStore store = make(2 * cost(), 100 * cost());
  for (std::int32_t c = 1; c < 6; ++c)
    put(store, talk(c, 100));
  EXPECT_EQ(store.stats().host_states, 0u);
  EXPECT_EQ(store.stats().device_states, 2u);
  EXPECT_EQ(store.find(talk(1, 100) + Ids{1}).miss_reason, miss::evicted);
}

TEST_F(Store, AStateTooLargeForItsTierIsNotKept) {
  StateStore store = make(cost(), 0);
  store.put(talk(1, 100), state(100, {new_page()}));
  EXPECT_EQ(store.stats().device_states, 0u);
  EXPECT_EQ(store.find(talk(1, 100) + Ids{1}).miss_reason, miss::evicted);
}

TEST_F(Store, FiftyStepsOfAToolLoopReadOnlyWhatIsNew) {
  StateStore store = make(8 * cost());
  Ids ids = talk(1, 1000);
  put(store, ids);
  for (std::int32_t step = 0; step < 50; ++step) {
    const Ids prompt = ids + talk(100 + step, 40);  // a tool's result
    ASSERT_EQ(found(store, prompt), static_cast<std::int64_t>(ids.size()));
    put(store, prompt);
    ids = prompt + talk(200 + step, 30);  // the next call
    put(store, ids);
  }
  EXPECT_EQ(store.stats().device_states, 8u);
}

TEST_F(Store, APromptShorterThanAPageIsFoundToo) {
  StateStore store = make(1 << 30);
  store.put(talk(1, 5), state(5, {new_page()}));
  EXPECT_EQ(found(store, talk(1, 5)), 5);
  EXPECT_EQ(store.find(talk(1, 5)).snapshot, nullptr);
  EXPECT_EQ(store.find(Ids{}).snapshot, nullptr);
}

TEST_F(Store, WhatItRemembersOfDroppedStatesIsBounded) {
  StateStoreOptions o{2 * cost(), 0, kPage};
  o.remembered_tokens = 1000;
  StateStore store = make(o);
  for (std::int32_t c = 1; c < 100; ++c) {
    put(store, talk(c, 100));
    ASSERT_LE(store.stats().remembered_tokens, 1000u + 2 * 100u);
  }
  EXPECT_EQ(store.find(talk(95, 100) + Ids{1}).miss_reason, miss::evicted);
  EXPECT_EQ(store.find(talk(1, 100) + Ids{1}).miss_reason, miss::cold);
}

TEST_F(Store, AVeryLongChainIsTakenApartAgain) {
  StateStoreOptions o{1ull << 40, 0, kPage};
  o.most_states = 20000;
  auto store = std::make_unique<StateStore>(o, StateStore::ToHost());
  const Ids a = talk(1, 5000);
  for (std::size_t n = 1; n <= 5000; ++n)
    store->put(first(a, n), state(n));
  EXPECT_EQ(store->stats().device_states, 5000u);
  EXPECT_EQ(store->stats().remembered_tokens, 5000u);
  store.reset();
}

/// Against a list of everything: any budget, any order of branching.
TEST_F(Store, FindsWhatAListFinds) {
  std::mt19937 draw(17);
  StateStore store = make(1 << 30);
  std::vector<Ids> all;
  const auto random_ids = [&] {
    Ids ids = all.empty() ? Ids{} : all[draw() % all.size()];
    ids.resize(draw() % (ids.size() + 1));
    const std::size_t more = 1 + draw() % 6;
    for (std::size_t i = 0; i < more; ++i)
      ids.push_back(static_cast<std::int32_t>(draw() % 3));
    return ids;
  };
  const auto starts = [](const Ids& a, const Ids& b) {
    return a.size() <= b.size() && std::equal(a.begin(), a.end(), b.begin());
  };
  for (int i = 0; i < 500; ++i) {
    const Ids prompt = random_ids();
    std::size_t deepest = 0, common = 0;
    for (const Ids& ids : all) {
      if (starts(ids, prompt) && ids.size() < prompt.size())
        deepest = std::max(deepest, ids.size());
      const auto end = std::mismatch(ids.begin(), ids.end(), prompt.begin(), prompt.end()).first;
      common = std::max(common, static_cast<std::size_t>(end - ids.begin()));
    }
    const auto f = store.find(prompt);
    ASSERT_EQ(f.snapshot ? static_cast<std::size_t>(f.snapshot->length()) : 0, deepest);
    ASSERT_EQ(static_cast<std::size_t>(f.common), common);
    const Ids ids = random_ids();
    put(store, ids);
    all.push_back(ids);
  }
}

}  // namespace
}  // namespace ponder::run
