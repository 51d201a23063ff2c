#include "daemon/http/access.h"

#include <gtest/gtest.h>

namespace ponder::daemon {
namespace {

constexpr const char* kKey = "0123456789abcdef0123456789abcdef";

RequestHead from_tcp(const std::string& host, std::vector<Header> more = {}) {
  RequestHead head;
  head.method = "GET";
  head.path = "/";
  head.door = Door::tcp;
  head.local_port = 7663;
  head.headers = std::move(more);
  head.headers.push_back({"host", host});
  return head;
}

Access plain() {
  return Access({.api_key = kKey});
}

TEST(Secret, MatchesOnlyTheSameText) {
  const Secret secret(kKey);
  EXPECT_TRUE(secret.matches(kKey));
  EXPECT_FALSE(secret.matches(""));
  EXPECT_FALSE(secret.matches(std::string(kKey) + "0"));
  EXPECT_FALSE(secret.matches(std::string(kKey).substr(1)));
  EXPECT_FALSE(secret.matches("0123456789ABCDEF0123456789abcdef"));
}

// Rebinding turns a foreign name into our address; whatever is not spelt exactly as ours is out.
TEST(Access, AcceptsThreeHostsAndNoOther) {
  const Access access = plain();
  int accepted = 0;
  for (const char* host : {"127.0.0.1:7663",
                           "localhost:7663",
                           "[::1]:7663",
                           "LOCALHOST:7663",  // ours
                           "127.0.0.1",
                           "localhost",
                           "[::1]",
                           "::1:7663",
                           "::1",
                           "127.0.0.1:7664",
                           "localhost:80",
                           "127.0.0.1:07663",
                           "127.0.0.1:7663 ",
                           "127.0.0.2:7663",
                           "127.1:7663",
                           "2130706433:7663",
                           "0x7f.1:7663",
                           "0.0.0.0:7663",
                           "0:7663",
                           "[::]:7663",
                           "[::ffff:127.0.0.1]:7663",
                           "[0:0:0:0:0:0:0:1]:7663",
                           "localhost.:7663",
                           "localhost.evil.example:7663",
                           "evil.example:7663",
                           "evil.example",
                           "127.0.0.1.evil.example:7663",
                           "foo.localhost:7663",
                           "user@127.0.0.1:7663",
                           "127.0.0.1:7663@evil",
                           "127.0.0.1:7663/",
                           "127.0.0.1:7663,evil",
                           "http://127.0.0.1:7663",
                           "ponder.local:7663",
                           "192.168.0.1:7663",
                           "10.0.0.1:7663",
                           "host.docker.internal:7663",
                           "",
                           ":7663",
                           "*"})
    accepted += access.check(from_tcp(host)).has_value();
  EXPECT_EQ(accepted, 4);
}

TEST(Access, AcceptsConfiguredAndListenedHosts) {
  const Access access({.api_key = kKey,
                       .listen_addresses = {"192.168.1.5:7663"},
                       .allowed_hosts = {"Box.lan:9000", "box2.lan"}});
  for (const char* host : {"192.168.1.5:7663", "box.lan:9000", "box2.lan", "box2.lan:7663"})
    EXPECT_TRUE(access.check(from_tcp(host))) << host;
  for (const char* host : {"192.168.1.5", "box.lan", "box.lan:7663", "box2.lan:9000"})
    EXPECT_FALSE(access.check(from_tcp(host))) << host;
}

TEST(Access, RefusesWebPages) {
  const Access access({.api_key = kKey, .allowed_origins = {"http://localhost:3000"}});
  const auto code = [&](std::vector<Header> headers) {
    headers.push_back({"x-api-key", kKey});
    const auto checked = access.check(from_tcp("localhost:7663", std::move(headers)));
    EXPECT_TRUE(checked || !checked.error().hint.empty()) << "what mends it";
    return checked ? ErrorCode::internal : checked.error().code;
  };
  for (const char* origin : {"http://evil.example", "null", "", "http://127.0.0.1:7663",
                             "http://localhost:3000.evil.example", "https://localhost:3000"})
    EXPECT_EQ(code({{"origin", origin}}), ErrorCode::forbidden) << origin;
  for (const char* site : {"cross-site", "same-site", "Cross-Site", "anything"})
    EXPECT_EQ(code({{"sec-fetch-site", site}}), ErrorCode::forbidden) << site;
  EXPECT_EQ(code({{"sec-fetch-site", "none"}}), ErrorCode::internal);
  EXPECT_EQ(code({{"sec-fetch-site", "same-origin"}}), ErrorCode::internal);
  EXPECT_EQ(code({{"origin", "http://localhost:3000"}, {"sec-fetch-site", "cross-site"}}),
            ErrorCode::internal);
}

TEST(Access, KnowsTheKeyInBothHeaders) {
  const Access access = plain();
  const std::string key = kKey;
  const auto trusted = [&](std::vector<Header> headers) {
    return *access.check(from_tcp("localhost:7663", std::move(headers)));
  };
  EXPECT_TRUE(trusted({{"authorization", "Bearer " + key}}));
  EXPECT_TRUE(trusted({{"authorization", "bearer  " + key}}));
  EXPECT_TRUE(trusted({{"x-api-key", key}}));
  EXPECT_TRUE(trusted({{"authorization", "Bearer other"}, {"x-api-key", key}}));
  EXPECT_FALSE(trusted({}));
  EXPECT_FALSE(trusted({{"authorization", key}}));
  EXPECT_FALSE(trusted({{"authorization", "Basic " + key}}));
  EXPECT_FALSE(trusted({{"authorization", "Bearer "}}));
  EXPECT_FALSE(trusted({{"authorization", "Bearer " + key + "x"}}));
  EXPECT_FALSE(trusted({{"x-api-key", ""}}));
  EXPECT_FALSE(trusted({{"x-api-key", key.substr(0, 31)}}));
}

TEST(Access, TrustsTheUnixSocketWhateverItsHost) {
  RequestHead head = from_tcp("anything");
  head.door = Door::unix_socket;
  EXPECT_TRUE(*plain().check(head));
}

}  // namespace
}  // namespace ponder::daemon
