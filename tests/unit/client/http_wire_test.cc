#include "clients/cpp/http_wire.h"

#include <gtest/gtest.h>

namespace ponder::client {
namespace {

TEST(HttpWireTest, ARequestLineCannotBeInjectedInto) {
  for (const char* target : {"", "/a b", "/a\r\nX: y", "/\xC3\xA4", "/\x7f"})
    EXPECT_FALSE(serialize_request({.method = "GET", .target = target, .host = "h"})) << target;
  EXPECT_FALSE(serialize_request({.method = "G T", .target = "/", .host = "h"}));
  EXPECT_TRUE(serialize_request({.method = "GET", .target = "/a?b=%20", .host = "h"}));
}

TEST(HttpWireTest, ABodyOverTheBoundIsRefusedWithAndWithoutItsLength) {
  for (const char* head :
       {"Content-Length: 11\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\nb\r\n"}) {
    ResponseReader reader(10);
    const auto fed = reader.feed(std::string("HTTP/1.1 200 OK\r\n") + head + "12345678901");
    ASSERT_FALSE(fed) << head;
    EXPECT_EQ(fed.error().code, ErrorCode::too_large);
  }
}

TEST(HttpWireTest, AnEndlessHeaderIsRefused) {
  ResponseReader reader(10);
  Result<void> fed = reader.feed("HTTP/1.1 200 OK\r\n");
  for (int i = 0; i < 100'000 && fed; ++i)
    fed = reader.feed("X-Filler: yes\r\n");
  EXPECT_FALSE(fed);
}

TEST(HttpWireTest, ABodyWhoseEndOnlyTheConnectionTellsIsNoWholeAnswer) {
  ResponseReader reader(100);
  ASSERT_TRUE(reader.feed("HTTP/1.0 200 OK\r\nRetry-After: 5\r\n\r\n{}"));
  EXPECT_FALSE(reader.done());
  EXPECT_EQ(reader.header("retry-after"), "5");
  EXPECT_EQ(reader.header("absent"), "");
  const auto ended = reader.feed_end();
  ASSERT_FALSE(ended);
  EXPECT_EQ(ended.error().code, ErrorCode::stream_lost);
}

}  // namespace
}  // namespace ponder::client
