#include "engine/run/selftest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/generator/pebble.h"
#include "tests/unit/run/fake_model.h"

namespace ponder::run {
namespace {

using test::FakeModel;
using test::FakeOptions;
using test::Fault;

/// Leg by leg, whether it was equal.
std::vector<std::pair<std::string, bool>> legs_of(FakeOptions options, bool expected) {
  FakeModel model(options);
  std::vector<std::pair<std::string, bool>> legs;
  const Result<bool> equal =
      selftest(model, *test::pebble_vocabulary().tokenizer, [&](const SelftestLeg& leg) {
        legs.emplace_back(leg.name, !leg.first_difference);
        if (leg.first_difference) {
          EXPECT_GE(*leg.first_difference, 0);
          EXPECT_LT(*leg.first_difference, 48);
        }
        return Result<void>();
      });
  EXPECT_TRUE(equal);
  EXPECT_EQ(equal.value_or(!expected), expected);
  return legs;
}

std::vector<std::string> wrong_with(Fault fault) {
  FakeOptions o;
  o.fault = fault;
  std::vector<std::string> wrong;
  for (const auto& [name, equal] : legs_of(o, false))
    if (!equal) wrong.push_back(name);
  return wrong;
}

TEST(Selftest, AllLegsOfASoundModelAreEqual) {
  using testing::Pair;
  EXPECT_THAT(legs_of({}, true),
              testing::ElementsAre(Pair("cold", true), Pair("warm", true), Pair("restored", true),
                                   Pair("host", true), Pair("chunked", true), Pair("batched", true),
                                   Pair("speculative", true), Pair("resumed", true)));
}

TEST(Selftest, WithoutADraftLayerThereIsNoSuchLeg) {
  FakeOptions o;
  o.drafts = false;
  for (const auto& [name, equal] : legs_of(o, true))
    EXPECT_NE(name, "speculative");
}

TEST(Selftest, EachPlantedFaultIsFoundWhereItIs) {
  using testing::ElementsAre;
  EXPECT_THAT(wrong_with(Fault::read_twice), ElementsAre("warm"));
  EXPECT_THAT(wrong_with(Fault::restore), ElementsAre("warm", "restored", "host"));
  EXPECT_THAT(wrong_with(Fault::host), ElementsAre("host"));
  EXPECT_THAT(wrong_with(Fault::small_chunk), testing::Contains("chunked"));
  EXPECT_THAT(wrong_with(Fault::batch), ElementsAre("batched"));
  EXPECT_THAT(wrong_with(Fault::keep), ElementsAre("speculative"));
}

TEST(Selftest, AWindowTooSmallIsRefusedWithASentence) {
  FakeOptions o;
  o.n_ctx = 60;
  FakeModel model(o);
  const auto done = selftest(model, *test::pebble_vocabulary().tokenizer,
                             [](const SelftestLeg&) { return Result<void>(); });
  ASSERT_FALSE(done);
  EXPECT_THAT(done.error().hint, testing::HasSubstr("--ctx"));
}

}  // namespace
}  // namespace ponder::run
