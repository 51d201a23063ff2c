#include "engine/run/lookup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ponder::run {
namespace {

using Ids = std::vector<std::int32_t>;
using testing::ElementsAre;
using testing::IsEmpty;

Ids drafts(const Ids& sequence, std::size_t shortest, std::size_t most) {
  Lookup lookup;
  lookup.follow(sequence);
  return lookup.drafts(sequence, shortest, most);
}

TEST(Lookup, GoesOnAsItWentOnBefore) {
  EXPECT_THAT(drafts({1, 2, 3, 4, 5, 6, 7, 9, 9, 1, 2, 3, 4}, 4, 3), ElementsAre(5, 6, 7));
  EXPECT_THAT(drafts({1, 2, 3, 4, 5, 6, 7, 9, 9, 2, 3, 4}, 4, 3), IsEmpty());
  EXPECT_THAT(drafts({1, 2, 3, 4}, 4, 3), IsEmpty());
  EXPECT_THAT(drafts({}, 4, 3), IsEmpty());
  EXPECT_THAT(drafts({1, 2, 3, 4, 5, 1, 2, 3, 4}, 4, 0), IsEmpty());
}

TEST(Lookup, WantsAsManyTokensAlikeAsAskedFor) {
  const Ids ids{1, 2, 3, 4, 5, 6, 7, 8, 40, 41, 1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_THAT(drafts(ids, 8, 2), ElementsAre(40, 41));
  EXPECT_THAT(drafts(ids, 9, 2), IsEmpty());
}

TEST(Lookup, PrefersTheLongerMatchThenTheLaterOne) {
  //           the longer match            a later, shorter one
  const Ids ids{9, 1, 2, 3, 4, 70, 8, 8, 5, 1, 2, 3, 4, 80, 8, 8, 9, 1, 2, 3, 4};
  EXPECT_THAT(drafts(ids, 4, 1), ElementsAre(70));
  const Ids alike{1, 2, 3, 4, 70, 1, 2, 3, 4, 80, 1, 2, 3, 4};
  EXPECT_THAT(drafts(alike, 4, 1), ElementsAre(80));
}

TEST(Lookup, APeriodGoesOnAfterItsEnd) {
  EXPECT_THAT(drafts({1, 2, 3, 1, 2, 3, 1, 2, 3}, 4, 7), ElementsAre(1, 2, 3, 1, 2, 3, 1));
  EXPECT_THAT(drafts({7, 7, 7, 7, 7}, 4, 3), ElementsAre(7, 7, 7));
}

/// The slow obvious search: longest common suffix, the latest of the longest.
Ids searched(const Ids& ids, std::size_t shortest, std::size_t most) {
  std::size_t best = 0, best_length = 0;
  for (std::size_t at = ids.size() - 1; at > 0; --at) {
    std::size_t length = 0;
    while (length < std::min<std::size_t>(at, 64) &&
           ids[at - 1 - length] == ids[ids.size() - 1 - length])
      ++length;
    if (length > best_length) {
      best = at;
      best_length = length;
    }
  }
  Ids out;
  if (best_length < shortest) return out;
  for (std::size_t i = 0; i < most; ++i)
    out.push_back(best + i < ids.size() ? ids[best + i] : out[best + i - ids.size()]);
  return out;
}

TEST(Lookup, FindsWhatASearchFindsAndFollowsTokenByToken) {
  std::mt19937 draw(3);
  Ids ids;
  Lookup lookup;
  int found = 0;
  std::size_t copy_from = 0, copy_left = 0;
  for (int i = 0; i < 1500; ++i) {
    if (copy_left == 0 && i > 40 && draw() % 25 == 0) {  // copies a stretch, as an edit does
      copy_from = draw() % (ids.size() - 20);
      copy_left = 12;
    }
    if (copy_left > 0) {
      ids.push_back(ids[copy_from++]);
      --copy_left;
    } else {
      ids.push_back(static_cast<std::int32_t>(draw() % 5000));
    }
    lookup.follow(ids);
    const Ids got = lookup.drafts(ids, 4, 5);
    found += got.empty() ? 0 : 1;
    if (ids.size() > 4) {
      ASSERT_EQ(got, searched(ids, 4, 5)) << i;
    }
  }
  EXPECT_GT(found, 100);
  EXPECT_LT(found, 1000);
}

TEST(Lookup, GrowsPastItsFirstTable) {
  Ids ids;
  Lookup lookup;
  for (std::int32_t i = 0; i < 5000; ++i) {
    ids.push_back(i);
    lookup.follow(ids);
  }
  for (std::int32_t i = 10; i < 18; ++i)
    ids.push_back(i);
  lookup.follow(ids);
  EXPECT_THAT(lookup.drafts(ids, 8, 2), ElementsAre(18, 19));
}

}  // namespace
}  // namespace ponder::run
