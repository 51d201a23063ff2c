// Snapshots: from any position, in either memory, into any sequence, the text goes on with the same
// bits; pages are shared, and whoever writes copies first.
#include <gtest/gtest.h>

#include <set>

#include "tests/unit/models/state_runs.h"

namespace ponder::models::testing {
namespace {

constexpr LoadOptions kOptions = {
    .n_ctx = 256, .threads = 2, .kv = KvType::f16, .chunk = 64, .drafts = true};

class Snapshots : public ::testing::TestWithParam<bool> {  // with drafts
 protected:
  Snapshots() {
    LoadOptions options = kOptions;
    options.drafts = GetParam();
    model_ = load_bytes(tiny_hybrid(), options);
  }
  std::unique_ptr<Model> model_;
};
INSTANTIATE_TEST_SUITE_P(All, Snapshots, ::testing::Bool(),
                         [](const auto& p) { return p.param ? "WithDrafts" : "Plain"; });

TEST_P(Snapshots, GoOnFromEveryPositionInAnotherSequence) {
  const std::int32_t vocab = model_->vocab();
  const Ids ids = random_ids(vocab, 204);
  const PlainRun plain(*model_, ids);  // saved at every position, and read on unharmed:
  const auto chunked = model_->new_sequence();
  EXPECT_EQ(first_difference(read(*model_, *chunked, ids), plain.logits, vocab), -1);
  const auto sequence = model_->new_sequence();
  for (std::size_t at = 0; at + 4 <= ids.size(); ++at) {
    std::shared_ptr<const Snapshot> from = plain.snapshots[at];
    if (at % 3 == 0) {
      auto copy = model_->to_host(*from);
      ASSERT_TRUE(copy);
      from = *copy;
    }
    EXPECT_EQ(from->length(), static_cast<std::int64_t>(at));
    // elsewhere first, where what is shared would be overwritten
    ASSERT_TRUE(model_->restore(*sequence, *from));
    read(*model_, *sequence, random_ids(vocab, 4, 99));
    ASSERT_TRUE(model_->restore(*sequence, *from));
    EXPECT_EQ(first_difference(read(*model_, *sequence, std::span(ids).subspan(at, 4)),
                               plain.rows(at, 4), vocab),
              -1)
        << at;
  }
}

TEST_P(Snapshots, ShareTheirPages) {
  const Ids ids = random_ids(model_->vocab(), 200);
  const auto sequence = model_->new_sequence();
  read(*model_, *sequence, std::span(ids).first(130));
  const auto first = save(*model_, *sequence);
  read(*model_, *sequence, std::span(ids).subspan(130, 20));
  const auto second = save(*model_, *sequence);
  ASSERT_EQ(first->pages().size(), 3u);
  ASSERT_EQ(second->pages().size(), 3u);
  EXPECT_EQ(first->pages()[0], second->pages()[0]);
  EXPECT_EQ(first->pages()[1], second->pages()[1]);
  EXPECT_NE(first->pages()[2], second->pages()[2]) << "written since, so copied";
  EXPECT_EQ(first->pages()[0]->memory.size(), model_->page_bytes());
  EXPECT_GE(first->own_bytes(), dynamic_cast<const DecoderSnapshot&>(*first).state().size_bytes());
  EXPECT_TRUE(first->on_device());
}

TEST_P(Snapshots, AreCopiedOnceAndComeBackOnce) {
  const Ids ids = random_ids(model_->vocab(), 200);
  const auto sequence = model_->new_sequence();
  read(*model_, *sequence, std::span(ids).first(150));
  auto device = save(*model_, *sequence);
  const auto host = *model_->to_host(*device), again = *model_->to_host(*device);
  EXPECT_FALSE(host->on_device());
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NE(host->pages()[i], device->pages()[i]);
    EXPECT_EQ(host->pages()[i], again->pages()[i]);
  }
  // while the device's pages live, a restore takes them
  const auto other = model_->new_sequence();
  ASSERT_TRUE(model_->restore(*other, *host));
  EXPECT_EQ(save(*model_, *other)->pages()[0], device->pages()[0]);
  // the sequence alone writes into its last page now: it is no longer what the host copy holds
  device.reset();
  other->clear();
  read(*model_, *sequence, random_ids(model_->vocab(), 5, 3));
  ASSERT_TRUE(model_->restore(*other, *host));
  EXPECT_NE(save(*model_, *other)->pages()[2], save(*model_, *sequence)->pages()[2]);
  const auto fresh = model_->new_sequence();
  const auto expected = read(*model_, *fresh, ids);
  const auto vocab = static_cast<std::size_t>(model_->vocab());
  EXPECT_EQ(first_difference(read(*model_, *other, std::span(ids).subspan(150)),
                             std::span(expected).subspan(150 * vocab), model_->vocab()),
            -1);
}

TEST_P(Snapshots, OutliveTheirSequence) {
  const PlainRun plain(*model_, random_ids(model_->vocab(), 140));
  std::shared_ptr<const Snapshot> snapshot;
  {
    const auto sequence = model_->new_sequence();
    read(*model_, *sequence, std::span(plain.ids).first(100));
    snapshot = save(*model_, *sequence);
  }
  const auto sequence = model_->new_sequence();
  read(*model_, *sequence, random_ids(model_->vocab(), 30, 5));  // whatever it held
  ASSERT_TRUE(model_->restore(*sequence, *snapshot));
  EXPECT_EQ(sequence->length(), 100);
  EXPECT_EQ(first_difference(read(*model_, *sequence, std::span(plain.ids).subspan(100)),
                             plain.rows(100, 40), model_->vocab()),
            -1);
}

}  // namespace
}  // namespace ponder::models::testing
