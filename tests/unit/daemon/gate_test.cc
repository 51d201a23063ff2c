// The gate on raw bytes, without sockets.
#include "daemon/http/gate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

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
        {"TransferEncodingInCapitals",
         request("POST / HTTP/1.1", kHost + "Transfer-Encoding: Chunked\r\n")},
        {"EmptyHost", request("GET / HTTP/1.1", "Host: \r\n")},
        {"HostOfTwoWords", request("GET / HTTP/1.1", "Host: a b\r\n")},
        {"HostWithUser", request("GET / HTTP/1.1", "Host: a@b\r\n")},
        {"HostList", request("GET / HTTP/1.1", "Host: a,b\r\n")},
        {"EscapedControl", request("GET /v1/models/%0d%0a HTTP/1.1", kHost)},
        {"PathNotUtf8", request("GET /v1/models/%c0%ae HTTP/1.1", kHost)},
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

std::string chunk(std::string_view data, std::string_view after_size = "") {
  char size[20];
  std::snprintf(size, sizeof size, "%zx", data.size());
  return size + std::string(after_size) + "\r\n" + std::string(data) + "\r\n";
}

/// Whether the body passes, fed in pieces that are cut at `cut`.
Result<bool> judge_cut(const std::string& body, std::size_t cut) {
  ChunkGate gate({});
  TRY_VOID(gate.judge(std::string_view(body).substr(0, cut)));
  TRY_VOID(gate.judge(std::string_view(body).substr(cut)));
  return gate.done();
}

TEST(Chunks, PassAndAreRefusedWhereverTheyAreCut) {
  const std::string end = "0\r\n\r\n";
  const struct {
    std::string body;
    bool passes;
  } bodies[] = {
      {chunk("hello") + end, true},
      {chunk("a\r\n0\r\n\r\nb") + end, true},
      {"000A;q=\"x y\";z\r\n0123456789\r\n" + end, true},
      {chunk("x") + "0\r\nX-Sum: 1\r\nY: 2\r\n\r\n", true},
      {end, true},
      {"5 \r\nhello\r\n" + end, false},
      {" 5\r\nhello\r\n" + end, false},
      {"\r\n" + end, false},
      {"-5\r\n", false},
      {"0x5\r\n", false},
      {"1234567890123456\r\n", false},
      {"5\nhello\r\n" + end, false},
      {"5\rhello\r\n" + end, false},
      {chunk("hello", ";") + end, false},
      {chunk("hello", "; a") + end, false},
      {chunk("hello", ";a=") + end, false},
      {chunk("hello", ";a=\"b") + end, false},
      {chunk("hello", ";a=\"b\\\"c\"") + end, false},
      {chunk("hello", ";" + std::string(256, 'a')) + end, false},
      {"5\r\nhelloo\r\n" + end, false},
      {"5\r\nhello\n" + end, false},
      {"5\r\nhello" + end, false},
      {chunk("x") + "0\n\r\n", false},
      {chunk("x") + "0\r\nContent-Length: 5\r\n\r\n", false},
      {chunk("x") + "0\r\nTransfer-Encoding: chunked\r\n\r\n", false},
      {chunk("x") + "0\r\nHost: a\r\n\r\n", false},
      {chunk("x") + "0\r\nSec-Fetch-Site: none\r\n\r\n", false},
      {chunk("x") + "0\r\nX: a\r\n b\r\n\r\n", false},
      {chunk("x") + "0\r\nX: \x01\r\n\r\n", false},
      {chunk("x") + "0\r\nnothing\r\n\r\n", false},
      {chunk("x") + "0\r\n" + fields_of(65) + "\r\n", false},
      {chunk("x") + "0\r\nX: " + std::string(17 * 1024, 'y') + "\r\n\r\n", false},
  };
  for (const auto& [body, passes] : bodies)
    for (std::size_t cut = 0; cut <= std::min(body.size(), std::size_t{100}); ++cut) {
      const auto judged = judge_cut(body, cut);
      ASSERT_EQ(judged.has_value(), passes) << body.substr(0, 60) << " cut at " << cut;
      if (passes) {
        ASSERT_TRUE(*judged) << body.substr(0, 60) << " cut at " << cut;
      }
    }
}

TEST(Chunks, WhatStandsBehindTheBodyIsTheNextRequests) {
  ChunkGate gate({});
  ASSERT_TRUE(gate.judge(chunk("x") + "0\r\n\r\n\x01\n\n"));
  EXPECT_TRUE(gate.done());
  ASSERT_TRUE(gate.judge("\x01"));
}

}  // namespace
}  // namespace ponder::daemon
