#include "engine/base/utf8.h"

#include <gtest/gtest.h>

namespace ponder {
TEST(Utf8, AcceptsExactlyTheValidSequences) {
  for (char32_t c = 0; c < 0x110000; c += (c < 0x3000 ? 1 : 97)) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string s;
    append_utf8(s, c);
    char32_t back = 0;
    EXPECT_EQ(decode_utf8(s, 0, back), static_cast<int>(s.size()));
    EXPECT_EQ(back, c);
  }
  for (const char* bad : {"\x80", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80",
                          "\xF8\x88\x80\x80\x80", "\xE2\x82", "a\xFFz"})
    EXPECT_FALSE(is_valid_utf8(bad)) << bad;
}

// ASCII is read eight bytes at a time: a fault is found wherever it stands.
TEST(Utf8, FindsAFaultAtEveryPlace) {
  for (std::size_t at = 0; at < 40; ++at) {
    std::string text(40, 'a');
    EXPECT_TRUE(is_valid_utf8(text));
    text[at] = '\xff';
    EXPECT_FALSE(is_valid_utf8(text)) << at;
    text.replace(at, 1, "\u00e9");
    EXPECT_TRUE(is_valid_utf8(text)) << at;
    text.erase(at, 1);
    EXPECT_FALSE(is_valid_utf8(text)) << at;
  }
}

TEST(Utf8, CountsAndFindsCodePoints) {
  const std::string s = "a\u00e9\u4e2d\U0001F600z";
  EXPECT_EQ(count_code_points(s), 5);
  EXPECT_EQ(byte_offset_of(s, 0), 0u);
  EXPECT_EQ(byte_offset_of(s, 2), 3u);
  EXPECT_EQ(byte_offset_of(s, 4), 10u);
  EXPECT_EQ(byte_offset_of(s, 9), s.size());
}

TEST(Utf8, CompletePrefixHoldsBackOnlyWhatCanStillBecomeACharacter) {
  const std::string s = "x\U0001F600";
  EXPECT_EQ(complete_prefix(s), 5u);
  for (std::size_t cut = 2; cut < 5; ++cut)
    EXPECT_EQ(complete_prefix(s.substr(0, cut)), 1u);
  EXPECT_EQ(complete_prefix(""), 0u);
  EXPECT_EQ(complete_prefix("a\x80\x80\x80\x80"), 5u) << "stray bytes are never held back";
}

TEST(Utf8, ReplacesEachInvalidByte) {
  EXPECT_EQ(replace_invalid("a\xFF\xFE"
                            "b"),
            "a\uFFFD\uFFFDb");
  EXPECT_TRUE(is_valid_utf8(replace_invalid(std::string("\xF0\x9F\x98"))));
}
}  // namespace ponder
