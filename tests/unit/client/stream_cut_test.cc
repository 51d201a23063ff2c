// Recorded answers cut at every byte: a piece is never the whole. The connection ends there, as it
// does when a daemon is killed; what was read until then must be a beginning of the whole, and the
// call must say that it is not all, unless the event that ends a job has come through.
//
// With PONDER_SOAK=1 every byte of every record (over 50,000), else each 13th.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "clients/cpp/daemon_client.h"
#include "engine/base/unique_fd.h"
#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace ponder::client {
namespace {
using client_test::TempDir;

/// Answers every connection with the first `size` bytes of `bytes` and hangs up. One thread and no
/// more than that, because it is asked tens of thousands of times.
class CuttingServer {
 public:
  explicit CuttingServer(const std::string& path)
      : listener_(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    if (::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(listener_.get(), 16) != 0)
      std::abort();
    thread_ = std::thread([this] { serve(); });
  }
  ~CuttingServer() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  /// Between two calls only.
  void give(std::string_view bytes) { bytes_ = bytes; }

 private:
  void serve() {
    for (;;) {
      const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!peer) return;
      std::string head;
      char buffer[4096];
      while (head.find("\r\n\r\n") == std::string::npos) {
        const ssize_t n = ::recv(peer.get(), buffer, sizeof buffer, 0);
        if (n <= 0) break;
        head.append(buffer, static_cast<std::size_t>(n));
      }
      (void)::send(peer.get(), bytes_.data(), bytes_.size(), MSG_NOSIGNAL);
    }
  }

  UniqueFd listener_;
  std::thread thread_;
  std::string_view bytes_;
};

std::string chunk(std::string_view data) {
  char size[20];
  std::snprintf(size, sizeof size, "%zx\r\n", data.size());
  return size + std::string(data) + "\r\n";
}

std::string event(int id, std::string_view name, std::string_view data) {
  return "id: " + std::to_string(id) + "\nevent: " + std::string(name) +
         "\ndata: " + std::string(data) + "\n\n";
}

constexpr std::string_view kStreamHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: "
    "no-store\r\n"
    "X-Accel-Buffering: no\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n";

/// A job's events as the daemon sends them: `per_chunk` events in one chunk.
std::string job_stream(int texts, int per_chunk, bool beats) {
  std::string out(kStreamHead);
  std::string pending;
  int id = 0, in_chunk = 0;
  const auto add = [&](std::string bytes) {
    pending += bytes;
    if (++in_chunk < per_chunk) return;
    out += chunk(std::exchange(pending, {}));
    in_chunk = 0;
  };
  add(event(++id, "state", R"({"state":"running","reason":null,"attempt":1})"));
  for (int i = 0; i < texts; ++i) {
    const bool thinks = i < texts / 4;
    add(event(++id, thinks ? "reasoning" : "answer",
              R"({"text":"w)" + std::to_string(i) + R"( \u00e9 ä 😀 [DONE] end\n"})"));
    if (beats && i % 5 == 0) add(": ping\n\n");
  }
  add(event(++id, "state", R"({"state":"completed","reason":null,"attempt":1})"));
  pending += event(++id, "end", R"({"job_id":"01k0aaaaaaaaaaaaaaaaaaaaaa","state":"completed"})");
  return out + chunk(pending) + "0\r\n\r\n";
}

std::string whole_answer(int fields, std::string_view more_headers) {
  std::string body = "{";
  for (int i = 0; i < fields; ++i)
    body += (i ? ",\"f" : "\"f") + std::to_string(i) + R"(":"text ä )" + std::to_string(i) + "\"";
  body += "}";
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + std::string(more_headers) +
         "Content-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

std::string chunked_answer(int fields) {
  const std::string plain = whole_answer(fields, "");
  const std::string body = plain.substr(plain.find("\r\n\r\n") + 4);
  return "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" +
         chunk(body.substr(0, body.size() / 2)) + chunk(body.substr(body.size() / 2)) + "0\r\n\r\n";
}

std::size_t stride() {
  const char* soak = std::getenv("PONDER_SOAK");
  return soak && std::string_view(soak) == "1" ? 1 : 13;
}

class StreamCut : public testing::Test {
 protected:
  DaemonClient client() const {
    ClientOptions options;
    options.places = *find_places(home_.path());
    options.may_start = false;
    return DaemonClient(options);
  }
  void report(const char* what) const {
    std::printf("FIGURE | P5 | cuts of %s; taken as success | %zu; %zu | 0 |\n", what, cuts_,
                successes_);
  }

  TempDir home_;
  CuttingServer server_{home_ / "ponderd.sock"};
  std::size_t cuts_ = 0;
  std::size_t successes_ = 0;
};

TEST_F(StreamCut, NoPieceOfAnEventStreamIsTakenForTheWhole) {
  DaemonClient daemon = client();
  for (const std::string& record : {job_stream(260, 1, false), job_stream(100, 1, true),
                                    job_stream(80, 7, true), job_stream(40, 1000, false)}) {
    std::vector<std::string> whole;
    server_.give(record);
    ASSERT_TRUE(daemon.stream("/events", [&](const ServerEvent& e) {
      whole.push_back(e.id + e.event + e.data);
      return true;
    }));
    ASSERT_GT(whole.size(), 40u);
    for (std::size_t cut = 0; cut < record.size(); cut += stride()) {
      std::vector<std::string> got;
      bool ended = false;
      server_.give(std::string_view(record).substr(0, cut));
      const auto read = daemon.stream("/events", [&](const ServerEvent& e) {
        got.push_back(e.id + e.event + e.data);
        ended |= e.event == "end";
        return true;
      });
      ++cuts_;
      // The caller sees the end of a job by its event alone, and the reader adds none of its own.
      ASSERT_LE(got.size(), whole.size());
      ASSERT_TRUE(std::equal(got.begin(), got.end(), whole.begin())) << "cut at " << cut;
      ASSERT_EQ(ended, got.size() == whole.size()) << "cut at " << cut;
      if (read) ++successes_;
      ASSERT_FALSE(read) << "cut at " << cut << " of " << record.size();
    }
  }
  report("event streams");
}

TEST_F(StreamCut, NoPieceOfAWholeAnswerIsTakenForIt) {
  DaemonClient daemon = client();
  for (const std::string& record :
       {whole_answer(400, ""), whole_answer(30, "X-Request-Id: 0123456789abcdef\r\n"),
        chunked_answer(150)}) {
    server_.give(record);
    ASSERT_TRUE(daemon.call("GET", "/v1/jobs/x", nullptr, 5'000));
    for (std::size_t cut = 0; cut < record.size(); cut += stride()) {
      server_.give(std::string_view(record).substr(0, cut));
      const auto answer = daemon.call("GET", "/v1/jobs/x", nullptr, 5'000);
      ++cuts_;
      if (answer) ++successes_;
      ASSERT_FALSE(answer) << "cut at " << cut << " of " << record.size();
    }
  }
  report("whole answers");
}

// Without a length and without chunks only the connection's end would tell that it is all, and that
// looks the same when a daemon dies.
TEST_F(StreamCut, AnAnswerWithoutALengthIsRefused) {
  DaemonClient daemon = client();
  for (const std::string_view record :
       {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":1}",
        "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{\"a\":1}",
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nevent: answer\ndata: {}\n\n"}) {
    server_.give(record);
    EXPECT_FALSE(daemon.call("GET", "/v1/jobs/x", nullptr, 5'000)) << record;
    EXPECT_FALSE(daemon.stream("/events", [](const ServerEvent&) { return true; })) << record;
  }
}

}  // namespace
}  // namespace ponder::client
