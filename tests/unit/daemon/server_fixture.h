#pragma once
// A served Api on a Unix socket and a TCP port of its own, over a fake queue and generator.
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "daemon/api/api.h"
#include "daemon/api/error_map.h"
#include "engine/base/ids.h"
#include "tests/unit/daemon/fake_job_queue.h"
#include "tests/unit/daemon/raw_client.h"

namespace ponder::daemon {

constexpr const char* kJobId = "01k0aaaaaaaaaaaaaaaaaaaaaa";

inline json::object envelope(std::string_view state) {
  return {{"job_id", kJobId}, {"state", state}, {"note", nullptr}};
}

class ServedApi : public testing::Test {
 protected:
  void SetUp() override {
    directory = std::filesystem::temp_directory_path() / ("ponder-daemon-" + random_hex(6));
    std::filesystem::create_directory(directory);
    key = random_hex(32);
  }
  void TearDown() override {
    if (server) server->stop();
    generator.stop();  // its answers go to the queue
    queue.reset();
    api.reset();
    server.reset();
    std::filesystem::remove_all(directory);
  }

  /// Serves with these limits; tests that want other ones call it before anything else.
  void serve(ServerLimits limits = {}, AccessOptions options = {}) {
    server = std::make_unique<Server>(limits);
    ASSERT_TRUE(server->listen_unix(directory / "s"));
    const auto bound = server->listen_tcp("127.0.0.1", 0);
    ASSERT_TRUE(bound) << bound.error().message;
    port = *bound;
    options.api_key = key;
    access = std::make_unique<Access>(std::move(options));
    ApiServices services{.queue = *queue,
                         .generator = generator,
                         .clock = system_clock(),
                         .access = *access,
                         .version = "1",
                         .build = "b"};
    services.stream_start_ms = stream_start_ms;
    services.chat_heartbeat_ms = heartbeat_ms;
    services.events_heartbeat_ms = heartbeat_ms;
    services.json_limits = {limits.max_body_bytes, 64};
    api = std::make_unique<Api>(services);
    server->start([this](RequestHead& head) { return api->admit(head); },
                  [this](ExchangePtr exchange, std::string body) {
                    api->handle(std::move(exchange), std::move(body));
                  },
                  error_response);
  }

  RawClient on_unix() { return RawClient::unix_socket(directory / "s"); }
  RawClient on_tcp() { return RawClient::tcp(port); }

  static std::string get(const std::string& target) {
    return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  }
  static std::string with_body(const std::string& method, const std::string& target,
                               const std::string& body) {
    return method + " " + target +
           " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: " +
           std::to_string(body.size()) + "\r\n\r\n" + body;
  }
  static std::string post(const std::string& target, const std::string& body) {
    return with_body("POST", target, body);
  }
  RawResponse ask(const std::string& bytes) { return on_unix().request(bytes); }

  std::filesystem::path directory;
  std::string key;
  std::uint16_t port = 0;
  std::int64_t stream_start_ms = 2'000;
  std::int64_t heartbeat_ms = 10'000;
  FakeGenerator generator;
  std::unique_ptr<FakeJobQueue> queue = std::make_unique<FakeJobQueue>();
  std::unique_ptr<Access> access;
  std::unique_ptr<Api> api;
  std::unique_ptr<Server> server;
};

}  // namespace ponder::daemon
