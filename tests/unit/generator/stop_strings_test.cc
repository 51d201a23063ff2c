#include "engine/generator/stop_strings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace ponder {
namespace {

/// The rule, letter by letter: stop as soon as the text so far ends in a stop string.
std::string reference(const std::string& text, const std::vector<std::string>& stops, bool& hit) {
  hit = false;
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (!stop.empty() && end >= stop.size() &&
          text.compare(end - stop.size(), stop.size(), stop) == 0)
        longest = std::max(longest, stop.size());
    if (longest > 0) {
      hit = true;
      return text.substr(0, end - longest);
    }
  }
  return text;
}

TEST(StopStrings, HoldsBackWhatCouldStillBecomeOne) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("one E"), "one ");
  EXPECT_EQ(stops.push("N"), "");
  EXPECT_EQ(stops.push("x"), "ENx");
  EXPECT_EQ(stops.push("E"), "");
  EXPECT_EQ(stops.push("ND more"), "");
  EXPECT_TRUE(stops.hit());
  EXPECT_EQ(stops.push("never"), "");
  EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, GivesOutTheRestAtTheEnd) {
  StopStrings stops({"END"});
  EXPECT_EQ(stops.push("abE"), "ab");
  EXPECT_EQ(stops.flush(), "E");
  EXPECT_FALSE(stops.hit());
}

TEST(StopStrings, PropertySameAsLetterByLetterHoweverTheTextIsCut) {
  std::mt19937 random(3);
  const auto word = [&](int longest) {
    std::string w;
    for (unsigned n = random() % static_cast<unsigned>(longest + 1); n > 0; --n)
      w += "ab"[random() % 2];
    return w;
  };
  for (int round = 0; round < 20'000; ++round) {
    const std::string text = word(24);
    const std::vector<std::string> stops{word(4), word(6), word(5)};
    bool want_hit = false;
    const std::string want = reference(text, stops, want_hit);
    StopStrings cutter(stops);
    std::string got;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t n = 1 + random() % 6;
      got += cutter.push(text.substr(at, n));
      at += n;
    }
    got += cutter.flush();
    ASSERT_EQ(got, want) << text;
    ASSERT_EQ(cutter.hit(), want_hit) << text;
  }
}

}  // namespace
}  // namespace ponder
