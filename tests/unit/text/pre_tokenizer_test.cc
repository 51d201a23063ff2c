#include "engine/text/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ponder::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view name, std::string_view text) {
  const PieceMatcher matcher = find_pre_tokenizer(name);
  Pieces pieces;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t n = matcher(text, at);
    pieces.emplace_back(text.substr(at, n));
    at += n;
  }
  return pieces;
}
void expect_both(std::string_view text, const Pieces& pieces) {
  EXPECT_EQ(split("qwen2", text), pieces);
  EXPECT_EQ(split("qwen35", text), pieces);
}

TEST(PreTokenizer, PartsContractions) {
  expect_both("I'M don't WE'LL", {"I", "'M", " don", "'t", " WE", "'LL"});
  expect_both("$100 'tis", {"$", "1", "0", "0", " '", "tis"});
  expect_both("'reach", {"'re", "ach"});
  expect_both("'", {"'"});
  expect_both("'r", {"'r"});
}
TEST(PreTokenizer, PartsWhiteSpace) {
  expect_both("a  b   c\n\n  d \n", {"a", " ", " b", "  ", " c", "\n\n", " ", " d", " \n"});
  expect_both("  \t\n\tfoo()\r\n\r\nbar", {"  \t\n", "\tfoo", "()\r\n\r\n", "bar"});
  expect_both("...\n\n\nend  ", {"...\n\n\n", "end", "  "});
  expect_both("\t=", {"\t", "="});
  expect_both("  =", {" ", " ="});
}
TEST(PreTokenizer, PartsNumbersAndNames) {
  expect_both("x=12345.6e7;", {"x", "=", "1", "2", "3", "4", "5", ".", "6", "e", "7", ";"});
  expect_both("_snake_case fooBar2", {"_snake", "_case", " fooBar", "2"});
  expect_both("\u0663\u0664\u096b \u216b \u00b2",
              {"\u0663", "\u0664", "\u096b", " ", "\u216b", " ", "\u00b2"});
}
TEST(PreTokenizer, MarksBelongToWordsInQwen35Only) {
  EXPECT_EQ(split("qwen35", "e\u0301te\u0301"), (Pieces{"e\u0301te\u0301"}));
  EXPECT_EQ(split("qwen2", "e\u0301te\u0301"), (Pieces{"e", "\u0301te", "\u0301"}));
  EXPECT_EQ(split("qwen35", "\u0928\u092e\u0938\u094d\u0924\u0947"),
            (Pieces{"\u0928\u092e\u0938\u094d\u0924\u0947"}));
  EXPECT_EQ(split("qwen2", "\u0928\u092e\u0938\u094d\u0924\u0947"),
            (Pieces{"\u0928\u092e\u0938", "\u094d\u0924", "\u0947"}));
  expect_both("\u0301x", {"\u0301x"});
}
TEST(PreTokenizer, SmolLmPartsNumbersFirstThenFollowsGpt2) {
  const std::pair<std::string_view, Pieces> cases[] = {
      {"I'M don't WE'LL", {"I", "'", "M", " don", "'t", " WE", "'", "LL"}},
      {"a  b   c\n\n  d \n", {"a", " ", " b", "  ", " c", "\n\n ", " d", " \n"}},
      {"x=12345.6e7;", {"x", "=", "1", "2", "3", "4", "5", ".", "6", "e", "7", ";"}},
      {"  \t\n\tfoo()\r\n\r\nbar", {"  \t\n", "\t", "foo", "()", "\r\n\r", "\n", "bar"}},
      {"_snake_case fooBar2", {"_", "snake", "_", "case", " fooBar", "2"}},
      {"$100 'tis", {"$", "1", "0", "0", " '", "tis"}},
      {"...\n\n\nend  ", {"...", "\n\n", "\n", "end", "  "}},
      {"e\u0301te\u0301", {"e", "\u0301", "te", "\u0301"}},
      {"\u0301x", {"\u0301", "x"}},
      {"a   1  b", {"a", "   ", "1", " ", " b"}},
      {" 7", {" ", "7"}},
      {"\u216b\u00b2", {"\u216b", "\u00b2"}},
      {"'s 's's", {"'s", " '", "s", "'s"}},
      {"\xFF\xFE a", {"\xFF\xFE", " a"}}};
  for (const auto& [text, pieces] : cases)
    EXPECT_EQ(split("smollm", text), pieces) << text;
}
TEST(PreTokenizer, Llama3TakesUpToThreeNumbers) {
  EXPECT_EQ(split("llama-bpe", "12345 x6 \u0663\u0664\u096b\u216b"),
            (Pieces{"123", "45", " x", "6", " ", "\u0663\u0664\u096b", "\u216b"}));
  EXPECT_EQ(split("llama-bpe", "I'M 3.14\n\n"), (Pieces{"I", "'M", " ", "3", ".", "14", "\n\n"}));
}
TEST(PreTokenizer, TheByteOrderMarkIsNoSpace) {
  expect_both(" \ufeff", {" \ufeff"});
  expect_both("\u0085x", {"\u0085x"});
}
TEST(PreTokenizer, InvalidBytesAreSymbols) {
  expect_both(
      "a\xFF\xFE"
      "b",
      {"a", "\xFF\xFE", "b"});
  expect_both("\xE4\xBD", {"\xE4\xBD"});
  expect_both(" \xFF", {" \xFF"});
}
TEST(PreTokenizer, UnknownNamesHaveNone) {
  EXPECT_EQ(find_pre_tokenizer("nosuch"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
}

}  // namespace
}  // namespace ponder::text
