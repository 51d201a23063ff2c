#include "clients/cpp/sse_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ponder::client {
namespace {
using Events = std::vector<std::string>;

std::string in_words(const ServerEvent& e) {
  return e.id + "|" + e.event + "|" + e.data;
}

/// Reads `text` in pieces of the given sizes.
Events read_in_two(std::string_view text, std::size_t split) {
  SseReader reader;
  Events events;
  const auto take = [&](const ServerEvent& e) {
    events.push_back(in_words(e));
    return true;
  };
  EXPECT_TRUE(reader.feed(text.substr(0, split), take));
  EXPECT_TRUE(reader.feed(text.substr(split), take));
  return events;
}

TEST(SseReaderTest, GivesTheSameWhereverTheBytesAreSplit) {
  const std::string text =
      "\xEF\xBB\xBFid: 1\nevent: answer\ndata: {\"text\":\"\xC3\xA4\"}\n\n"
      ": a comment\n\n"
      "data: two\r\ndata:  lines\r\n\r\n"
      "id: 2\rdata\r\r"
      "unknown: x\nid:3\nevent: end\ndata: last\n\n"
      "data: never ended\n";
  const Events expected{"1|answer|{\"text\":\"\xC3\xA4\"}", "1|message|two\n lines", "2|message|",
                        "3|end|last"};
  for (std::size_t split = 0; split <= text.size(); ++split)
    ASSERT_EQ(read_in_two(text, split), expected) << split;
}

TEST(SseReaderTest, AnEventWithoutDataIsNoneAndItsNameIsForgotten) {
  EXPECT_EQ(read_in_two("event: a\n\ndata: b\n\n", 0), Events{"|message|b"});
}

TEST(SseReaderTest, AnIdWithANulIsIgnored) {
  EXPECT_EQ(read_in_two(std::string_view("id: 1\nid: \0\ndata: b\n\n", 21), 0),
            Events{"1|message|b"});
}

TEST(SseReaderTest, StopsInTheMiddleWhenToldTo) {
  SseReader reader;
  int count = 0;
  ASSERT_TRUE(reader.feed("data: 1\n\ndata: 2\n\n", [&](const ServerEvent&) {
    ++count;
    return false;
  }));
  EXPECT_TRUE(reader.stopped());
  EXPECT_EQ(count, 1);
}

TEST(SseReaderTest, AnEndlessLineIsRefused) {
  SseReader reader;
  const std::string piece(1 << 20, 'x');
  Result<void> fed;
  for (int i = 0; i < 20 && fed; ++i)
    fed = reader.feed(piece, [](const ServerEvent&) { return true; });
  ASSERT_FALSE(fed);
  EXPECT_EQ(fed.error().code, ErrorCode::too_large);
}

}  // namespace
}  // namespace ponder::client
