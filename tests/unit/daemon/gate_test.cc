// The gate on raw bytes, without sockets.
#include "daemon/http/gate.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ponder::daemon {
namespace {

Result<RequestHead> read(const std::string& raw) {
  return read_head(raw, {});
}

const std::string kHost = "Host: localhost\r\n";

TEST(Gate, ReadsAnOrdinaryRequest) {
  const auto head = read(
      "POST /v1/jobs/a%20b?wait_s=1.5&workspace=%2Fhome%2Fme+x&flag HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Length: 12\r\nX-Thing:  two words \r\n\r\n");
  ASSERT_TRUE(head) << head.error().message;
  EXPECT_EQ(head->method, "POST");
  EXPECT_EQ(head->path, "/v1/jobs/a b");
  EXPECT_EQ(*head->parameter("wait_s"), "1.5");
  EXPECT_EQ(*head->parameter("workspace"), "/home/me x");
  EXPECT_EQ(*head->parameter("flag"), "");
  EXPECT_EQ(head->parameter("other"), nullptr);
  EXPECT_EQ(*head->header("x-thing"), "two words");
  EXPECT_EQ(head->content_length, 12u);
  EXPECT_TRUE(head->keep_alive);
}

TEST(Gate, KeepsAConnectionAsTheVersionAndHeaderSay) {
  EXPECT_FALSE(read("GET / HTTP/1.1\r\n" + kHost + "Connection: close\r\n\r\n")->keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.1\r\n" + kHost + "Connection: TE, Close\r\n\r\n")->keep_alive);
  EXPECT_FALSE(read("GET / HTTP/1.0\r\n\r\n")->keep_alive);
}

struct Refusal {
  const char* name;
  std::string raw;
};
class GateRefuses : public testing::TestWithParam<Refusal> {};

TEST_P(GateRefuses, WithBadRequest) {
  const auto head = read(GetParam().raw);
  ASSERT_FALSE(head) << "accepted";
  EXPECT_EQ(head.error().code, ErrorCode::bad_request);
  EXPECT_FALSE(head.error().message.empty());
}

std::string request(const std::string& line, const std::string& fields) {
  return line + "\r\n" + fields + "\r\n";
}
std::string fields_of(int n) {
  std::string out;
  for (int i = 0; i < n; ++i)
    out += "X-" + std::to_string(i) + ": y\r\n";
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    Each, GateRefuses,
    testing::ValuesIn(std::vector<Refusal>{
        {"MissingHost", request("GET / HTTP/1.1", "")},
        {"RepeatedHost", request("GET / HTTP/1.1", kHost + kHost)},
        {"TransferEncodingOtherThanChunked",
         request("POST / HTTP/1.1", kHost + "Transfer-Encoding: gzip\r\n")},
        {"TransferEncodingList",
         request("POST / HTTP/1.1", kHost + "Transfer-Encoding: gzip, chunked\r\n")},
        {"TransferEncodingTwice",
         request("POST / HTTP/1.1",
                 kHost + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n")},
        {"TransferEncodingBeforeLength",
         request("POST / HTTP/1.1", kHost + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n")},
        {"LengthBeforeTransferEncoding",
         request("POST / HTTP/1.1", kHost + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n")},
        {"GzipBesideLength",
         request("POST / HTTP/1.1", kHost + "Transfer-Encoding: gzip\r\nContent-Length: 3\r\n")},
        {"ChunkedOnHttp10", request("POST / HTTP/1.0", kHost + "Transfer-Encoding: chunked\r\n")},
        {"TwoLengths",
         request("POST / HTTP/1.1", kHost + "Content-Length: 3\r\nContent-Length: 4\r\n")},
        {"TwoEqualLengths",
         request("POST / HTTP/1.1", kHost + "Content-Length: 3\r\nContent-Length: 3\r\n")},
        {"LengthList", request("POST / HTTP/1.1", kHost + "Content-Length: 3, 3\r\n")},
        {"LengthWithPlus", request("POST / HTTP/1.1", kHost + "Content-Length: +5\r\n")},
        {"LengthNegative", request("POST / HTTP/1.1", kHost + "Content-Length: -1\r\n")},
        {"LengthHex", request("POST / HTTP/1.1", kHost + "Content-Length: 0x10\r\n")},
        {"LengthEmpty", request("POST / HTTP/1.1", kHost + "Content-Length: \r\n")},
        {"LengthOverflow",
         request("POST / HTTP/1.1", kHost + "Content-Length: 18446744073709551616\r\n")},
        {"SpaceBeforeColon", request("GET / HTTP/1.1", "Host : localhost\r\n")},
        {"FoldedLine", request("GET / HTTP/1.1", kHost + "X-A: b\r\n c\r\n")},
        {"FoldedFirstLine", request("GET / HTTP/1.1", " Host: localhost\r\n" + kHost)},
        {"NoColon", request("GET / HTTP/1.1", kHost + "nothing\r\n")},
        {"EmptyName", request("GET / HTTP/1.1", kHost + ": x\r\n")},
        {"TooManyFields", request("GET / HTTP/1.1", kHost + fields_of(64))},
        {"AbsoluteForm", request("GET http://localhost/ HTTP/1.1", kHost)},
        {"Asterisk", request("OPTIONS * HTTP/1.1", kHost)},
        {"Authority", request("CONNECT localhost:80 HTTP/1.1", kHost)},
        {"Fragment", request("GET /#a HTTP/1.1", kHost)},
        {"SpaceInTarget", request("GET /a b HTTP/1.1", kHost)},
        {"HighByteInTarget", request("GET /\xff HTTP/1.1", kHost)},
        {"NoTarget", request("GET HTTP/1.1", kHost)},
        {"Http2", request("GET / HTTP/2.0", kHost)},
        {"Http12", request("GET / HTTP/1.2", kHost)},
        {"LowerCaseVersion", request("GET / http/1.1", kHost)},
        {"MethodWithColon", request("GE:T / HTTP/1.1", kHost)},
        {"EscapedSlash", request("GET /v1/jobs/a%2fb HTTP/1.1", kHost)},
        {"EscapedBackslash", request("GET /v1/jobs/a%5Cb HTTP/1.1", kHost)},
        {"Backslash", request("GET /v1\\jobs HTTP/1.1", kHost)},
        {"EscapedNul", request("GET /v1/jobs%00 HTTP/1.1", kHost)},
        {"DotDot", request("GET /v1/../etc HTTP/1.1", kHost)},
        {"EscapedDotDot", request("GET /v1/%2e%2e HTTP/1.1", kHost)},
        {"BrokenEscape", request("GET /v1/%2 HTTP/1.1", kHost)},
        {"BrokenEscapeInQuery", request("GET /v1?a=%zz HTTP/1.1", kHost)},
        {"ExpectOther", request("POST / HTTP/1.1", kHost + "Expect: 200-ok\r\n")},
        {"RepeatedContentType",
         request("POST / HTTP/1.1", kHost + "Content-Type: a/b\r\nContent-Type: a/b\r\n")},
        {"RepeatedAuthorization",
         request("GET / HTTP/1.1",
                 kHost + "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n")},
        {"RepeatedApiKey", request("GET / HTTP/1.1", kHost + "X-Api-Key: a\r\nX-Api-Key: b\r\n")},
        {"RepeatedOrigin", request("GET / HTTP/1.1", kHost + "Origin: a\r\nOrigin: b\r\n")},
    }),
    [](const auto& test) { return test.param.name; });

TEST(Gate, AcceptsSixtyFourFields) {
  EXPECT_TRUE(read(request("GET / HTTP/1.1", kHost + fields_of(63))));
}

TEST(Gate, RefusesCompressedBodiesAsUnsupported) {
  const auto head = read(request("POST / HTTP/1.1", kHost + "Content-Encoding: gzip\r\n"));
  ASSERT_FALSE(head);
  EXPECT_EQ(head.error().code, ErrorCode::unsupported_media);
}

// The scan of a header that comes in two parts, cut anywhere, says the same as the scan at once.
TEST(Gate, FindsTheEndWhereverTheHeaderIsCut) {
  const std::string raw = request("GET / HTTP/1.1", kHost + "A: b\r\n") + "body";
  for (std::size_t cut = 0; cut <= raw.size(); ++cut) {
    const HeadScan first = scan_head(raw.substr(0, cut), 0, {});
    ASSERT_NE(first.state, HeadScan::State::refused) << cut;
    const HeadScan whole = scan_head(raw, std::min(cut, raw.size() - 4 - 1), {});
    ASSERT_EQ(whole.state, HeadScan::State::complete) << cut;
    EXPECT_EQ(whole.size, raw.size() - 4);
  }
}

TEST(Gate, ScanRefusesAtOnceWhatCanNeverBecomeAHeader) {
  for (const std::string& raw :
       {std::string("GET / HTTP/1.1\n"), std::string("GET / HTTP/1.1\rX"),
        std::string("GET /\0", 6), std::string("GET / HTTP/1.1\r\nA: \x01"),
        std::string("GET / HTTP/1.1\r\nA: \x7f"), std::string("\r\nGET"),
        std::string(16 * 1024, 'a')})
    EXPECT_EQ(scan_head(raw, 0, {}).state, HeadScan::State::refused) << raw.substr(0, 20);
  EXPECT_EQ(scan_head(std::string(16 * 1024 - 1, 'a'), 0, {}).state, HeadScan::State::need_more);
}

}  // namespace
}  // namespace ponder::daemon
