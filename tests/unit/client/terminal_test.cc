#include "clients/cli/terminal.h"

#include <gtest/gtest.h>

#include "engine/base/utf8.h"

namespace ponder::cli {
namespace {

TEST(TerminalTest, EscapesWhatAModelCouldDoToATerminal) {
  EXPECT_EQ(escape_controls("a\tb\nc"), "a\tb\nc");
  EXPECT_EQ(escape_controls("\x1b[31m"), "\\u001b[31m");
  EXPECT_EQ(escape_controls(std::string_view("\0\r\x7f", 3)), "\\u0000\\u000d\\u007f");
  EXPECT_EQ(escape_controls("\xC2\x9B"), "\\u009b");
  EXPECT_EQ(escape_controls("\xE2\x80\xAE\xE2\x81\xA6"), "\\u202e\\u2066");
  EXPECT_EQ(escape_controls("ä€😀\xC2\xA0"), "ä€😀\xC2\xA0");
  EXPECT_EQ(escape_controls("\xff\xC3"), "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(TerminalTest, NoCodePointBelowSpaceOrOfC1GetsThrough) {
  for (char32_t c = 0; c < 0x100; ++c) {
    std::string text;
    append_utf8(text, c);
    const bool harmless = c == '\n' || c == '\t' || (c >= 0x20 && c < 0x7f) || c >= 0xa0;
    EXPECT_EQ(escape_controls(text) == text, harmless) << static_cast<int>(c);
  }
}

}  // namespace
}  // namespace ponder::cli
