// Real sockets: framing, limits, timeouts, connections.
#include <fmt/core.h>
#include <sys/wait.h>

#include <thread>

#include "tests/unit/daemon/server_fixture.h"

namespace ponder::daemon {
namespace {

using std::chrono::milliseconds;

class Http : public ServedApi {
 protected:
  std::string tcp_get(const std::string& target, const std::string& more = {}) {
    return fmt::format("GET {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{}\r\n", target, port, more);
  }
  std::string key_header() { return "Authorization: Bearer " + key + "\r\n"; }
};

// Each is sent in front of a good request: a server that resynchronises would answer twice.
/// Of any job: so many bytes of text.
auto page_of(std::size_t bytes) {
  return [bytes](const std::string& id, jobs::Part part, std::int64_t, std::int64_t) {
    jobs::ResultPage page;
    page.job_id = id;
    page.part = part;
    page.text = std::string(bytes, 'x');
    return Result<jobs::ResultPage>(page);
  };
}

TEST_F(Http, AmbiguousRequestsAreRefusedOnceAndTheConnectionEnds) {
  serve();
  const std::string good = get("/health");
  const std::string line =
      "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\n"
      "Content-Type: application/json\r\n";
  const std::vector<std::string> bad = {
      line + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      line + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
      line + "Transfer-Encoding: gzip\r\nContent-Length: 5\r\n\r\n12345",
      line + "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
      line + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
      line + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n123456",
      line + "Content-Length: +5\r\n\r\n12345",
      line + "Content-Length : 5\r\n\r\n12345",
      line + "X: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
      line + "X: a\nContent-Length: 0\r\n\r\n",
      line + "X: a\x01\r\n\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\n5;" + std::string(300, 'e') +
          "\r\nhello\r\n0\r\n\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n",
      line + "Transfer-Encoding: chunked\r\n\r\n5" + std::string(40'000, ' '),
      "GET /health HTTP/1.1\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /v1/jobs/..%2fx HTTP/1.1\r\nHost: localhost\r\n\r\n",
      "GET /health HTTP/3.0\r\nHost: localhost\r\n\r\n",
      "\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
      std::string("\x16\x03\x01\x02\x00\x01", 6) + std::string(40, '\n'),  // a TLS hello
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: localhost\r\n" + std::string("X: ") +
          std::string(17'000, 'y') + "\r\n\r\n",
  };
  for (const std::string& raw : bad) {
    RawClient client = on_unix();
    client.send(raw + good);
    const std::string all = client.read_to_end();
    EXPECT_EQ(all.rfind("HTTP/1.1 400 ", 0), 0u)
        << raw.substr(0, 200) << "\n-> " << all.substr(0, 100);
    EXPECT_NE(all.find("Connection: close"), std::string::npos);
    EXPECT_EQ(all.find("X-Request-Id"), all.rfind("X-Request-Id"))
        << "a second answer to " << raw.substr(0, 200);
    EXPECT_NE(all.find("\"code\":\"bad_request\""), std::string::npos);
  }
  EXPECT_EQ(ask(good).status, 200);
}

TEST_F(Http, AnswersPipelinedRequestsInOrder) {
  serve();
  RawClient client = on_unix();
  client.send(post("/v1/tokenize", R"({"text": "a"})") + post("/v1/tokenize", R"({"text": "b"})") +
              get("/nothing") + get("/health"));
  EXPECT_EQ(client.response().parsed().at("tokens"), json::array{'a'});
  EXPECT_EQ(client.response().parsed().at("tokens"), json::array{'b'});
  EXPECT_EQ(client.response().status, 404);
  EXPECT_EQ(client.response().status, 200);
}

// The same request cut into two writes at every byte.
TEST_F(Http, ReadsARequestWhereverItIsCut) {
  serve();
  const std::string whole =
      "POST /v1/tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
      "application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
      "6;x=y\r\n{\"text\r\nc\r\n\": \"hello\"} \r\n0\r\n\r\n";
  RawClient client = on_unix();
  for (std::size_t cut = 1; cut < whole.size(); ++cut) {
    client.send(whole.substr(0, cut));
    std::this_thread::yield();
    client.send(whole.substr(cut));
    const RawResponse response = client.response();
    ASSERT_EQ(response.status, 200) << cut << " " << response.body;
    ASSERT_EQ(response.parsed().at("count").as_int64(), 5);
  }
}

TEST_F(Http, SendsContinueWhenAskedAndOnlyThen) {
  serve();
  RawClient client = on_unix();
  client.send(
      "POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 13\r\n\r\n");
  ASSERT_TRUE(client.read_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.take();
  EXPECT_EQ(client.request(R"({"text": "a"})").status, 200);
  RawClient refused = on_unix();
  refused.send(
      "POST /nothing HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 13\r\n\r\n");
  EXPECT_EQ(refused.read_to_end().rfind("HTTP/1.1 404", 0), 0u);
}

TEST_F(Http, SaysWhichMethodsAPathTakes) {
  serve();
  const RawResponse wrong = ask(with_body("PUT", "/v1/jobs", "{}"));
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.at("allow"), "POST, GET, HEAD");
  EXPECT_EQ(ask("DELETE /health HTTP/1.1\r\nHost: a\r\n\r\n").status, 405);
  EXPECT_EQ(ask("BREW /health HTTP/1.1\r\nHost: a\r\n\r\n").status, 405);
  const RawResponse options = ask("OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(options.status, 405);
}

TEST_F(Http, AnswersUnknownPathsInJson) {
  serve();
  for (const char* path : {"/", "/v2/jobs", "/v1/job", "/v1/jobs/", "/health/", "/v1/jobs/x/y/z"}) {
    const RawResponse response = ask(get(path));
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_FALSE(response.code().empty());
    EXPECT_EQ(response.headers.at("content-type"), "application/json");
  }
  RawClient client = on_unix();
  const RawResponse head = client.request("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n", true);
  EXPECT_EQ(head.status, 404);
  EXPECT_NE(head.headers.at("content-length"), "0");
  EXPECT_EQ(client.request("HEAD /health HTTP/1.1\r\nHost: a\r\n\r\n", true).status, 200);
  EXPECT_EQ(client.request(get("/health")).status, 200) << "no body came after HEAD";
}

TEST_F(Http, WantsJsonBodies) {
  serve();
  queue->on_cancel = [](const std::string&) { return envelope("cancelled"); };
  const auto post_as = [&](const std::string& target, const std::string& type,
                           const std::string& body) {
    return ask("POST " + target + " HTTP/1.1\r\nHost: a\r\n" + type +
               "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body)
        .status;
  };
  const std::string text = R"({"text": "a"})";
  for (const char* type :
       {"", "Content-Type: text/plain\r\n", "Content-Type: multipart/form-data\r\n",
        "Content-Type: application/x-www-form-urlencoded\r\n",
        "Content-Type: application/jsonx\r\n", "Content-Type: \r\n",
        "Content-Type: ;application/json\r\n",
        "Content-Type: application/json; charset=latin1\r\n"})
    EXPECT_EQ(post_as("/v1/tokenize", type, text), 415) << type;
  for (const char* type : {"Content-Type: application/json\r\n",
                           "content-type: Application/JSON; charset=\"UTF-8\"\r\n",
                           "Content-Type: application/json ;charset=utf-8\r\n"})
    EXPECT_EQ(post_as("/v1/tokenize", type, text), 200) << type;
  EXPECT_EQ(
      post_as("/v1/tokenize", "Content-Type: application/json\r\nContent-Encoding: gzip\r\n", text),
      415);
  const std::string cancel = "/v1/jobs/" + std::string(kJobId) + "/cancel";
  EXPECT_EQ(post_as(cancel, "", ""), 200) << "a POST that needs no body needs no type";
  EXPECT_EQ(post_as(cancel, "Content-Type: application/x-www-form-urlencoded\r\n", ""), 200);
  EXPECT_EQ(post_as(cancel, "Content-Type: text/plain\r\n", "x"), 415);
  EXPECT_EQ(post_as(cancel, "", "x"), 415);
}

// 7a row 26, boostorg/beast#1770: a limit that was set behind the header was ignored.
TEST_F(Http, RefusesBodiesOverTheLimitHoweverTheyAreFramed) {
  ServerLimits limits;
  limits.max_body_bytes = 1000;
  serve(limits);
  const std::string exact = R"({"text": ")" + std::string(1000 - 12, 'x') + "\"}";
  ASSERT_EQ(exact.size(), 1000u);
  EXPECT_EQ(ask(post("/v1/tokenize", exact)).status, 200);
  EXPECT_EQ(ask(post("/v1/tokenize", exact + " ")).status, 413);
  const std::string chunked =
      "POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(ask(chunked + "3e8\r\n" + exact + "\r\n0\r\n\r\n").status, 200);
  EXPECT_EQ(ask(chunked + "3e9\r\n" + exact + " \r\n0\r\n\r\n").status, 413);
  EXPECT_EQ(ask(chunked + "3e8\r\n" + exact + "\r\n1\r\n \r\n0\r\n\r\n").status, 413);
}

TEST_F(Http, BoundsTheBodyOfEveryResource) {
  ServerLimits limits;
  limits.max_body_bytes = 1000;
  serve(limits);
  const std::string exact = R"({"text": ")" + std::string(1000 - 12, 'x') + "\"}";
  queue->on_cancel = [](const std::string&) { return envelope("cancelled"); };
  queue->on_prune = [](const jobs::Prune&) { return std::vector<std::string>(); };
  int posts = 0;
  for (const Route& route : routes()) {
    if (route.method != "POST") continue;
    ++posts;
    std::string path(route.pattern);
    if (const std::size_t open = path.find("{id}"); open != path.npos)
      path.replace(open, 4, kJobId);
    EXPECT_NE(ask(post(path, exact)).status, 413) << path;
    EXPECT_EQ(ask(post(path, exact + " ")).status, 413) << path;
    const std::string chunked = "POST " + path +
                                " HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                                "Transfer-Encoding: chunked\r\n\r\n";
    EXPECT_NE(ask(chunked + "3e8\r\n" + exact + "\r\n0\r\n\r\n").status, 413) << path;
    EXPECT_EQ(ask(chunked + "3e9\r\n" + exact + " \r\n0\r\n\r\n").status, 413) << path;
  }
  EXPECT_GE(posts, 7);
}

TEST_F(Http, LetsAClientFinishSendingBeforeItReadsTheRefusal) {
  ServerLimits limits;
  limits.max_body_bytes = 1 << 20;
  serve(limits);
  RawClient client = on_tcp();
  ASSERT_TRUE(
      client.send(fmt::format("POST /v1/jobs HTTP/1.1\r\nHost: localhost:{}\r\n{}Content-Type: "
                              "application/json\r\nContent-Length: {}\r\n\r\n",
                              port, key_header(), 8 << 20)));
  EXPECT_TRUE(client.send(std::string(8 << 20, 'x')));
  EXPECT_EQ(client.response().status, 413);
}

TEST_F(Http, BoundsTheSumOfBodies) {
  ServerLimits limits;
  limits.max_body_bytes_total = 100'000;
  serve(limits);
  RawClient half = on_unix();  // holds 60,000 bytes and never ends
  half.send(
      "POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Content-Length: 70000\r\n\r\n" +
      std::string(60'000, ' '));
  ASSERT_TRUE(half.wait_until_taken());
  const std::string large = R"({"text": ")" + std::string(60'000, 'x') + "\"}";
  const RawResponse refused = ask(post("/v1/tokenize", large));
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.count("retry-after"));
  half.close();
  RawResponse accepted;
  for (int i = 0; i < 1000 && accepted.status != 200; ++i)
    accepted = ask(post("/v1/tokenize", large));
  EXPECT_EQ(accepted.status, 200);
}

TEST_F(Http, HostileBodiesAreRefusedAndTheNextRequestWorks) {
  serve();
  RawClient client = on_unix();
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  for (const std::string& body : {deep, "{\"text\":" + deep + "}", std::string(1'000'000, '['),
                                  std::string("{\"a\":1,\"a\":2}"), std::string("{\"text\":1e400}"),
                                  std::string("{\"text\":\"\xff\"}"), std::string("nonsense"),
                                  std::string("{\"text\":\"a\"} x"), std::string(),
                                  std::string("[]"), std::string("\0\0", 2)}) {
    const RawResponse response = client.request(post("/v1/tokenize", body));
    EXPECT_EQ(response.status, 400) << body.substr(0, 40) << response.body;
    EXPECT_EQ(client.request(get("/health")).status, 200);
  }
}

TEST_F(Http, TakesAJsonLineOfTwentyMebibytes) {
  serve();
  RawClient client = on_unix();
  const std::size_t size = 20u << 20;
  const std::string body = R"({"text": ")" + std::string(size, 'x') + "\", \"special\": 3}";
  client.send(post("/v1/tokenize", body));
  EXPECT_EQ(ask(get("/health")).status, 200) << "others are served meanwhile";
  EXPECT_EQ(client.response().code(), "bad_request") << "read to its last field";
  EXPECT_EQ(client.request(get("/health")).status, 200);
}

TEST_F(Http, SaysPlainlyWhatIsNotServedYet) {
  serve();
  for (const std::string path : {"/v1/completions", "/v1/responses", "/v1/messages",
                                 "/v1/messages/count_tokens", "/metrics", "/"}) {
    for (const std::string& request : {post(path, "{}"), get(path)}) {
      const RawResponse response = ask(request);
      EXPECT_EQ(response.status, 404) << request;
      ASSERT_EQ(response.code(), "not_found") << request;
      const json::value body = response.parsed();
      EXPECT_EQ(body.at("error").at("message").as_string(),
                path + " is not served by this version yet");
      EXPECT_TRUE(body.at("error").at("hint").is_string());
      EXPECT_EQ(body.as_object().contains("type"), path.starts_with("/v1/messages"));
    }
  }
  EXPECT_TRUE(ask(get("/nothing")).parsed().at("error").at("hint").is_string());
  const RawResponse stranger = on_tcp().request(
      "POST /v1/messages HTTP/1.1\r\nHost: localhost:" + std::to_string(port) + "\r\n\r\n");
  EXPECT_EQ(stranger.status, 401);
  EXPECT_EQ(stranger.parsed().at("type"), "error") << "as Anthropic's clients know it";
}

TEST_F(Http, KeepsWebPagesAndStrangersOut) {
  serve();
  EXPECT_EQ(on_tcp().request(tcp_get("/v1/models", key_header())).status, 200);
  EXPECT_EQ(on_tcp().request(tcp_get("/v1/models", "X-Api-Key: " + key + "\r\n")).status, 200);
  for (const char* path : {"/", "/v1/models", "/v1/jobs", "/nothing"}) {
    const RawResponse response = on_tcp().request(tcp_get(path));
    EXPECT_EQ(response.status, 401) << path;
    EXPECT_EQ(response.code(), "unauthorized");
  }
  const RawResponse health = on_tcp().request(tcp_get("/health"));
  EXPECT_EQ(health.parsed(), (json::object{{"state", "ready"}}));
  EXPECT_GT(on_tcp().request(tcp_get("/health", key_header())).parsed().as_object().size(), 5u);
  const std::string with_key = key_header();
  EXPECT_EQ(
      on_tcp().request(tcp_get("/v1/jobs", with_key + "Origin: http://evil.example\r\n")).status,
      403);
  EXPECT_EQ(
      on_tcp().request(tcp_get("/v1/jobs", with_key + "Sec-Fetch-Site: cross-site\r\n")).status,
      403);
  const RawResponse rebound = on_tcp().request(
      "GET /health HTTP/1.1\r\nHost: evil.example:" + std::to_string(port) + "\r\n\r\n");
  EXPECT_EQ(rebound.status, 400);
  EXPECT_EQ(rebound.headers.count("access-control-allow-origin"), 0u);
}

TEST_F(Http, TurnsOtherUsersAwayFromTheUnixSocket) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root to become another user";
  serve();
  std::filesystem::permissions(directory, std::filesystem::perms::all);
  std::filesystem::permissions(directory / "s", std::filesystem::perms::all);
  const pid_t stranger = ::fork();
  if (stranger == 0) {
    if (::setuid(65534) != 0) ::_exit(1);
    RawClient client = on_unix();
    if (!client.connected()) ::_exit(2);
    client.send(get("/health"));
    ::_exit(client.read_to_end().empty() ? 0 : 3);
  }
  int status = 0;
  ::waitpid(stranger, &status, 0);
  EXPECT_EQ(status, 0) << "1 no other user, 2 not connected, 3 answered: " << WEXITSTATUS(status);
}

TEST_F(Http, EndsConnectionsThatAreSlowToAsk) {
  ServerLimits limits;
  limits.header_timeout = milliseconds(60);
  serve(limits);
  RawClient silent = on_unix();
  EXPECT_TRUE(silent.is_closed_by_peer());
  RawClient header = on_unix();
  header.send("GET /health HT");
  EXPECT_TRUE(header.is_closed_by_peer());
}

// Each bound in a test of its own: a client that is late for another is ended by that one.
TEST_F(Http, EndsConnectionsThatAreSlowToFinishABody) {
  ServerLimits limits;
  limits.body_idle_timeout = milliseconds(60);
  serve(limits);
  RawClient body = on_unix();
  std::string unfinished = post("/v1/tokenize", R"({"text": "abc"})");
  unfinished.pop_back();
  body.send(unfinished);
  EXPECT_TRUE(body.is_closed_by_peer());
}

TEST_F(Http, EndsConnectionsThatAskNothingMore) {
  ServerLimits limits;
  limits.keep_alive_timeout = milliseconds(60);
  serve(limits);
  RawClient idle = on_unix();
  EXPECT_EQ(idle.request(get("/health")).status, 200);
  EXPECT_TRUE(idle.is_closed_by_peer());
}

// A drip of header bytes does not move the deadline.
TEST_F(Http, EndsAHeaderThatDrips) {
  ServerLimits limits;
  limits.header_timeout = milliseconds(100);
  serve(limits);
  RawClient client = on_unix();
  client.send("GET /health HTTP/1.1\r\nX: ");
  int sent = 0;
  while (client.send("y") && sent < 2000) {
    ++sent;
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_LT(sent, 1000);
}

// Nor does a drip of body bytes.
TEST_F(Http, EndsABodyThatDrips) {
  ServerLimits limits;
  limits.body_idle_timeout = milliseconds(200);
  serve(limits);
  RawClient drip = on_unix();
  drip.send(
      "POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Content-Length: 100000\r\n\r\n{");
  int sent = 0;
  while (drip.send(" ") && sent < 2000) {
    ++sent;
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_LT(sent, 1000);
}

// What comes in earnest has its time anew with each 16 KiB.
TEST_F(Http, TakesABodyThatIsLongerUnderWayThanItMayPause) {
  ServerLimits limits;
  limits.body_idle_timeout = milliseconds(2000);
  serve(limits);
  RawClient steady = on_unix();
  const std::string text(500'000, 'x');
  const std::string whole = post("/v1/tokenize", "{\"text\": \"" + text + "\"}");
  for (std::size_t at = 0; at < whole.size(); at += 20'000) {
    ASSERT_TRUE(steady.send(std::string_view(whole).substr(at, 20'000))) << at;
    std::this_thread::sleep_for(milliseconds(100));  // 2.6 s in all
  }
  EXPECT_EQ(steady.response().status, 200);
}

// Over TCP the kernel would keep what such a client has not taken, and its connection with it.
TEST_F(Http, ResetsATcpClientThatTakesNoBytes) {
  ServerLimits limits;
  limits.write_idle_timeout = milliseconds(100);
  serve(limits);
  queue->on_result = page_of(16 << 20);
  RawClient client = on_tcp();
  client.send("GET /v1/jobs/" + std::string(kJobId) + "/result HTTP/1.1\r\nHost: 127.0.0.1:" +
              std::to_string(port) + "\r\nX-Api-Key: " + key + "\r\n\r\n");
  pollfd hung_up{client.fd(), POLLRDHUP, 0};
  ASSERT_EQ(::poll(&hung_up, 1, 10'000), 1);
  EXPECT_TRUE(hung_up.revents & (POLLERR | POLLHUP | POLLRDHUP));
}

TEST_F(Http, KeepsPlacesForTheOwnerWhenTcpIsFull) {
  ServerLimits limits;
  limits.max_connections = 16;
  serve(limits);
  std::vector<RawClient> strangers;
  for (int i = 0; i < 20; ++i)
    strangers.push_back(on_tcp());
  EXPECT_EQ(strangers.back().response().status, 429);
  EXPECT_EQ(ask(get("/health")).status, 200);
}

TEST_F(Http, ReadsNothingBehindAChunkThatIsSpeltInTwoWays) {
  serve();
  RawClient client = on_unix();
  client.send(
      "POST /v1/tokenize HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
      "Transfer-Encoding: chunked\r\n\r\n2 \r\n{}\r\n0\r\n\r\n" +
      get("/health"));
  const RawResponse refusal = client.response();
  EXPECT_EQ(refusal.status, 400);
  EXPECT_EQ(refusal.headers.at("connection"), "close");
  EXPECT_EQ(client.read_to_end(), "");
}

TEST_F(Http, EndsAClientThatTakesNoBytes) {
  ServerLimits limits;
  limits.write_idle_timeout = milliseconds(100);
  serve(limits);
  queue->on_result = page_of(8 << 20);
  RawClient client = on_unix();
  client.send(get("/v1/jobs/" + std::string(kJobId) + "/result"));
  ASSERT_TRUE(client.read_until("HTTP/1.1 200"));
  for (int i = 0; i < 2000 && server->connections() > 0; ++i)
    std::this_thread::sleep_for(milliseconds(5));
  EXPECT_EQ(server->connections(), 0);
  EXPECT_LT(client.read_to_end().size(), 8u << 20);
}

TEST_F(Http, BoundsTheNumberOfConnections) {
  ServerLimits limits;
  limits.max_connections = 3;
  serve(limits);
  std::vector<RawClient> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(on_unix());
    ASSERT_EQ(held.back().request(get("/health")).status, 200);
  }
  EXPECT_EQ(on_unix().response().status, 429);
  held.clear();
  RawResponse response;
  for (int i = 0; i < 1000 && response.status != 200; ++i)
    response = ask(get("/health"));
  EXPECT_EQ(response.status, 200);
}

TEST_F(Http, ServesHttp10WithoutKeepingTheConnection) {
  serve();
  RawClient client = on_unix();
  client.send("GET /health HTTP/1.0\r\n\r\n");
  const std::string all = client.read_to_end();
  EXPECT_EQ(all.rfind("HTTP/1.1 200 OK", 0), 0u);
  EXPECT_NE(all.find("Connection: close"), std::string::npos);
}

TEST_F(Http, StillAnswersAClientThatHasClosedItsSendingSide) {
  serve();
  RawClient client = on_unix();
  client.send(post("/v1/tokenize", R"({"text": "a"})"));
  ::shutdown(client.fd(), SHUT_WR);
  EXPECT_EQ(client.response().status, 200);
}

TEST_F(Http, BindsAPathLongerThanTheKernelTakes) {
  const auto deep = directory / std::string(120, 'd');
  std::filesystem::create_directory(deep);
  Server long_path({});
  ASSERT_TRUE(long_path.listen_unix(deep / "ponderd.sock"));
  EXPECT_TRUE(std::filesystem::is_socket(deep / "ponderd.sock"));
  EXPECT_EQ(std::filesystem::status(deep / "ponderd.sock").permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  long_path.stop_accepting();
  EXPECT_FALSE(std::filesystem::exists(deep / "ponderd.sock"));
}

TEST_F(Http, RemovesItsOwnSocketAndNoOther) {
  const auto path = directory / "s";
  Server first({});
  ASSERT_TRUE(first.listen_unix(path));
  Server second({});
  ASSERT_TRUE(second.listen_unix(path));  // the first one has lost its path
  first.stop_accepting();
  EXPECT_TRUE(std::filesystem::is_socket(path));
  second.stop_accepting();
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(Http, ReplacesAStaleSocketButNotAFile) {
  { std::filesystem::create_directory(directory / "x"); }
  Server first({});
  ASSERT_TRUE(first.listen_unix(directory / "s"));
  Server second({});
  EXPECT_TRUE(second.listen_unix(directory / "s"));
  EXPECT_FALSE(second.listen_unix(directory / "x"));
}

TEST_F(Http, SaysThatAPortIsTaken) {
  serve();
  Server other({});
  const auto bound = other.listen_tcp("127.0.0.1", port);
  ASSERT_FALSE(bound);
  EXPECT_NE(bound.error().message.find("taken"), std::string::npos) << bound.error().message;
}

TEST_F(Http, AnswersARequestThatItsHandlerLost) {
  server = std::make_unique<Server>(ServerLimits{});
  ASSERT_TRUE(server->listen_unix(directory / "s"));
  server->start([](RequestHead&) { return std::optional<Response>(); },
                [](const ExchangePtr& exchange, const std::string&) {
                  if (exchange->head.path == "/throws") throw std::runtime_error("planted");
                },
                error_response);
  for (const char* path : {"/drops", "/throws"}) {
    const RawResponse response = ask(get(path));
    EXPECT_EQ(response.status, 500) << path;
    EXPECT_EQ(response.code(), "internal");
  }
}

TEST_F(Http, StopsCleanlyWithRequestsUnderWay) {
  serve();
  queue->on_get = [](const std::string&) { return envelope("running"); };
  RawClient waiting = on_unix();
  waiting.send(get("/v1/jobs/" + std::string(kJobId) + "?wait_s=300"));
  ASSERT_TRUE(queue->wait_until_waiting());
  RawClient idle = on_unix();
  ASSERT_EQ(idle.request(get("/health")).status, 200);
  server->stop_accepting();
  EXPECT_TRUE(idle.is_closed_by_peer());
  EXPECT_FALSE(on_unix().connected());
  queue->end_waits(envelope("interrupted"));
  server->drain(milliseconds(5000));
  EXPECT_EQ(waiting.response().parsed().at("state"), "interrupted");
}

}  // namespace
}  // namespace ponder::daemon
