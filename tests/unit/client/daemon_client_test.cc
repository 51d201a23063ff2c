#include "clients/cpp/daemon_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace ponder::client {
namespace {
using client_test::http_answer;
using client_test::Peer;
using client_test::ScriptedServer;
using client_test::SeenRequest;
using client_test::TempDir;
using std::chrono::steady_clock;
using testing::HasSubstr;
using testing::Not;

ClientOptions options_in(const std::string& home) {
  ClientOptions options;
  options.places = *find_places(home);
  options.may_start = false;
  return options;
}

class DaemonClientTest : public testing::Test {
 protected:
  std::string socket() const { return home_ / "ponderd.sock"; }
  DaemonClient client() const { return DaemonClient(options_in(home_.path())); }
  TempDir home_;
};

TEST_F(DaemonClientTest, SendsThePathTheBodyAndNoKeyOverTheSocket) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.answer(201, json::object{{"job_id", "x"}});
  });
  const json::value body(json::object{{"task", "zwei ü"}});
  const auto answer = client().call("POST", "/v1/jobs?a=b", &body, 5'000);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->body.at("job_id"), "x");
  const SeenRequest seen = server.seen().at(0);
  EXPECT_EQ(seen.method, "POST");
  EXPECT_EQ(seen.target, "/v1/jobs?a=b");
  EXPECT_EQ(seen.body, R"({"task":"zwei ü"})");
  EXPECT_THAT(seen.head, HasSubstr("Content-Type: application/json\r\n"));
  EXPECT_THAT(seen.head, HasSubstr("Host: localhost\r\n"));
  EXPECT_THAT(seen.head, Not(HasSubstr("Authorization")));
}

TEST_F(DaemonClientTest, APostWithoutABodySaysSo) {
  ScriptedServer server(socket(),
                        [](const SeenRequest&, Peer& peer) { peer.answer(204, nullptr); });
  const auto answer = client().call("POST", "/v1/jobs/x/cancel", nullptr, 5'000);
  ASSERT_TRUE(answer);
  EXPECT_TRUE(answer->body.is_null());
  EXPECT_THAT(server.seen().at(0).head, HasSubstr("Content-Length: 0\r\n"));
}

TEST_F(DaemonClientTest, ReadsAResponseThatArrivesByteByByte) {
  ScriptedServer server(socket(), [](const SeenRequest& request, Peer& peer) {
    if (request.target == "/sized")
      peer.send_split(http_answer(200, R"({"a":[1,2]})"), 1);
    else
      peer.send_split(
          "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
          "4\r\n{\"a\"\r\n7;x=y\r\n:[1,2]}\r\n0\r\n\r\n",
          1);
  });
  for (const char* target : {"/sized", "/chunked"}) {
    const auto answer = client().call("GET", target, nullptr, 5'000);
    ASSERT_TRUE(answer) << target << answer.error().message;
    EXPECT_EQ(to_json(answer->body), R"({"a":[1,2]})");
  }
}

TEST_F(DaemonClientTest, AServerThatDoesNotAnswerEndsTheCallAtItsBound) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) { peer.wait_until_gone(); });
  const auto started = steady_clock::now();
  const auto answer = client().call("GET", "/", nullptr, 150);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::timed_out);
  // The bound is kept in whole milliseconds of the clock: up to one less.
  EXPECT_GT(steady_clock::now() - started, std::chrono::milliseconds(148));
}

TEST_F(DaemonClientTest, AServerThatDripsForeverEndsTheCallAtItsBoundToo) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    while (peer.send("1\r\n \r\n"))
      std::this_thread::yield();
  });
  const auto answer = client().call("GET", "/", nullptr, 150);
  ASSERT_FALSE(answer);
  // Thousands of bytes a millisecond: the bound on the size may be reached first.
  EXPECT_THAT(answer.error().code, testing::AnyOf(ErrorCode::timed_out, ErrorCode::too_large));
}

TEST_F(DaemonClientTest, AnInterruptEndsEveryCallThatSharesIt) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) { peer.wait_until_gone(); });
  Interrupt interrupt;
  std::vector<ErrorCode> codes(3, ErrorCode::internal);
  std::vector<std::thread> threads;
  for (ErrorCode& code : codes)
    threads.emplace_back([&] {
      auto daemon = client();
      const auto answer = daemon.call("GET", "/slow", nullptr, 0, &interrupt);
      if (!answer) code = answer.error().code;
    });
  ASSERT_TRUE(server.wait_for("GET /slow", 3));
  interrupt.trigger();
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_THAT(codes, testing::Each(ErrorCode::cancelled));
  EXPECT_EQ(client().call("GET", "/later", nullptr, 0, &interrupt).error().code,
            ErrorCode::cancelled);
}

TEST_F(DaemonClientTest, NobodyThereIsUnreachableAndSaysHowToStart) {
  for (const bool stale : {false, true}) {
    if (stale) ScriptedServer(socket(), [](const SeenRequest&, Peer&) {});  // leaves its file
    const auto answer = client().call("GET", "/health", nullptr, 1'000);
    ASSERT_FALSE(answer);
    EXPECT_EQ(answer.error().code, ErrorCode::unreachable);
    EXPECT_THAT(answer.error().message, HasSubstr("no daemon is running"));
    EXPECT_EQ(answer.error().hint, "ponder start");
    EXPECT_FALSE(client().is_running());
  }
}

TEST_F(DaemonClientTest, AStoppedDaemonStaysStoppedAlsoForAClientThatMayStartIt) {
  client_test::write_file(home_ / "stopped", "2026-11-29T20:00:00.123Z\n");
  ClientOptions options = options_in(home_.path());
  options.may_start = true;
  const auto answer = DaemonClient(options).call("GET", "/health", nullptr, 1'000);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unreachable);
  EXPECT_EQ(answer.error().message,
            "stopped by its owner at 2026-11-29T20:00:00.123Z; `ponder start` (with --home " +
                home_.path() + ")");
  EXPECT_FALSE(std::filesystem::exists(home_ / "start.lock"));
}

TEST_F(DaemonClientTest, AMarkerWithoutATimeCountsFromItsFile) {
  client_test::write_file(home_ / "stopped", "\x1b[31m");
  EXPECT_THAT(stopped_sentence(*find_places(home_.path())),
              testing::MatchesRegex("stopped by its owner at 20[0-9-]+T[0-9:.]+Z; .*"));
}

TEST_F(DaemonClientTest, DecodesAnErrorWithAllItsFields) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.answer(400, json::object{{"error",
                                   {{"type", "invalid_request_error"},
                                    {"code", "context_length_exceeded"},
                                    {"message", "too long"},
                                    {"param", "task"},
                                    {"hint", "shorten it"},
                                    {"job_id", "abc"},
                                    {"n_prompt_tokens", 40'000},
                                    {"n_ctx", 32'768}}}});
  });
  const auto answer = client().call("GET", "/", nullptr, 5'000);
  ASSERT_FALSE(answer);
  const Error& error = answer.error();
  EXPECT_EQ(error.code, ErrorCode::context_length_exceeded);
  EXPECT_EQ(error.message, "too long");
  EXPECT_EQ(error.param, "task");
  EXPECT_EQ(error.hint, "shorten it");
  EXPECT_EQ(error.job_id, "abc");
  EXPECT_EQ(error.details.at("n_prompt_tokens"), 40'000);
  EXPECT_EQ(error.details.at("n_ctx"), 32'768);
}

TEST_F(DaemonClientTest, AnErrorWithoutABodyOrWithAnUnknownCodeGoesByItsStatus) {
  struct Case {
    int status;
    const char* body;
    ErrorCode code;
  };
  const std::vector<Case> cases{
      {400, "", ErrorCode::bad_request},
      {401, "<html>", ErrorCode::unauthorized},
      {404, R"({"error": 7})", ErrorCode::not_found},
      {410, R"({"error": {"code": "from_the_future", "message": 3}})", ErrorCode::gone},
      {413, "null", ErrorCode::too_large},
      {429, "", ErrorCode::queue_full},
      {500, "", ErrorCode::internal},
      {503, R"({"error": {"code": "storage"}})", ErrorCode::storage},
  };
  for (const Case& each : cases) {
    ScriptedServer server(socket(), [&](const SeenRequest&, Peer& peer) {
      peer.send(http_answer(each.status, each.body, "Retry-After: 7\r\n"));
    });
    const auto answer = client().call("GET", "/", nullptr, 5'000);
    ASSERT_FALSE(answer) << each.status;
    EXPECT_EQ(answer.error().code, each.code) << each.status;
    EXPECT_FALSE(answer.error().message.empty());
    EXPECT_EQ(answer.error().details.at("retry_after_s"), 7);
  }
}

TEST_F(DaemonClientTest, AHealthDocumentIsAnAnswerWhateverItsStatus) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.answer(503, json::object{{"state", "loading"}});
  });
  const auto answer = client().call("GET", "/health", nullptr, 5'000);
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503);
  EXPECT_EQ(answer->body.at("state"), "loading");
}

TEST_F(DaemonClientTest, WhatIsNoDaemonIsUnreachable) {
  for (const std::string& answer :
       {std::string("SSH-2.0-OpenSSH_9.2\r\n\r\n"), std::string("\0\xff\r\n\r\n\0", 7),
        http_answer(200, "<html></html>"), http_answer(200, "{\"a\":")}) {
    ScriptedServer server(socket(), [&](const SeenRequest&, Peer& peer) { peer.send(answer); });
    const auto got = client().call("GET", "/", nullptr, 5'000);
    ASSERT_FALSE(got) << answer;
    EXPECT_EQ(got.error().code, ErrorCode::unreachable) << answer << got.error().message;
  }
}

TEST_F(DaemonClientTest, AConnectionThatBreaksOffIsAnErrorAtEveryByte) {
  const std::string whole = http_answer(200, R"({"a":1})");
  std::size_t length = 0;
  ScriptedServer server(socket(), [&](const SeenRequest&, Peer& peer) {
    peer.send(std::string_view(whole).substr(0, length));
  });
  for (; length < whole.size(); ++length) {
    const auto got = client().call("GET", "/", nullptr, 5'000);
    ASSERT_FALSE(got) << length;
    EXPECT_EQ(got.error().code, ErrorCode::stream_lost) << length;
  }
  EXPECT_TRUE(client().call("GET", "/", nullptr, 5'000));
}

TEST_F(DaemonClientTest, AnAnswerThatComesBeforeALargeBodyWasReadCounts) {
  // A server of its own, since the scripted one reads the whole request first.
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, socket().c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  std::thread server([&] {
    const int fd = ::accept(listener, nullptr, nullptr);
    char byte;
    (void)!::read(fd, &byte, 1);
    Peer(fd).answer(413, json::object{{"error", {{"code", "too_large"}, {"message", "no"}}}});
    ::close(fd);
  });
  const json::value body(std::string(8u << 20, 'x'));
  const auto answer = client().call("POST", "/v1/jobs", &body, 10'000);
  server.join();
  ::close(listener);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::too_large) << answer.error().message;
}

TEST_F(DaemonClientTest, ASocketPathOf200BytesWorks) {
  const std::string deep = home_ / (std::string(90, 'a') + "/" + std::string(90, 'b'));
  std::filesystem::create_directories(deep);
  const std::string path = deep + "/ponderd.sock";
  ASSERT_GT(path.size(), 200u);
  EXPECT_FALSE(DaemonClient(options_in(deep)).is_running());
  ScriptedServer server(path, [](const SeenRequest&, Peer& peer) {
    peer.answer(200, json::object{{"state", "ready"}});
  });
  EXPECT_TRUE(DaemonClient(options_in(deep)).is_running());
  const auto answer = DaemonClient(options_in(deep)).call("GET", "/health", nullptr, 5'000);
  ASSERT_TRUE(answer) << answer.error().message;
  EXPECT_EQ(answer->body.at("state"), "ready");
}

TEST_F(DaemonClientTest, ASocketThatMayNotBeUsedSaysSoAndIsNotStartedOver) {
  client_test::write_file(socket(), "a plain file");
  ClientOptions options = options_in(home_.path());
  options.may_start = true;
  const auto answer = DaemonClient(options).call("GET", "/", nullptr, 1'000);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unreachable);
}

TEST_F(DaemonClientTest, ASuspendedDaemonIsToldFromASlowOne) {
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, socket().c_str());
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::listen(listener, 8);
    ::raise(SIGSTOP);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  const auto answer = client().call("GET", "/", nullptr, 10'000);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  ::close(listener);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unreachable);
  EXPECT_THAT(answer.error().message, HasSubstr("suspended"));
  EXPECT_EQ(answer.error().hint, "kill -CONT " + std::to_string(child));
}

class TcpTest : public DaemonClientTest {
 protected:
  ScriptedServer server_{[](const SeenRequest&, Peer& peer) {
    peer.answer(200, json::object{{"state", "ready"}});
  }};
  ClientOptions options() const {
    ClientOptions options = options_in(home_.path());
    options.url = "http://127.0.0.1:" + std::to_string(server_.port());
    return options;
  }
};

TEST_F(TcpTest, SendsTheKeyOfTheFileAndTheHost) {
  client_test::write_file(home_ / "key", "sk-secret\n");
  ClientOptions with_key = options();
  with_key.key_file = home_ / "key";
  ASSERT_TRUE(DaemonClient(with_key).call("GET", "/health", nullptr, 5'000));
  EXPECT_THAT(server_.seen().at(0).head, HasSubstr("Authorization: Bearer sk-secret\r\n"));
  EXPECT_THAT(server_.seen().at(0).head,
              HasSubstr("Host: 127.0.0.1:" + std::to_string(server_.port()) + "\r\n"));
}

TEST_F(TcpTest, WithoutAKeyFileTheLocalKeyIsUsedIfThereIsOne) {
  ASSERT_TRUE(DaemonClient(options()).call("GET", "/health", nullptr, 5'000));
  EXPECT_THAT(server_.seen().at(0).head, Not(HasSubstr("Authorization")));
  client_test::write_file(home_ / "api-key", "local");
  ASSERT_TRUE(DaemonClient(options()).call("GET", "/health", nullptr, 5'000));
  EXPECT_THAT(server_.seen().at(1).head, HasSubstr("Authorization: Bearer local\r\n"));
}

TEST_F(TcpTest, AKeyFileThatIsMissingOrHoldsNoKeyIsRefused) {
  ClientOptions with_key = options();
  with_key.key_file = home_ / "key";
  for (const char* content : {"", " \n", "two words", "inject\r\nHeader: x"}) {
    if (*content) client_test::write_file(with_key.key_file, content);
    const auto answer = DaemonClient(with_key).call("GET", "/health", nullptr, 5'000);
    ASSERT_FALSE(answer) << content;
    EXPECT_EQ(answer.error().code, ErrorCode::bad_request);
  }
  EXPECT_TRUE(server_.seen().empty());
}

TEST_F(TcpTest, ARefusedPortIsUnreachableAndStartsNothing) {
  ClientOptions nobody = options();
  {
    ScriptedServer other([](const SeenRequest&, Peer&) {});
    nobody.url = "http://127.0.0.1:" + std::to_string(other.port());
  }
  const auto answer = DaemonClient(nobody).call("GET", "/health", nullptr, 5'000);
  ASSERT_FALSE(answer);
  EXPECT_EQ(answer.error().code, ErrorCode::unreachable);
}

TEST(ClientOptionsTest, AUrlMustBePlainHttp) {
  for (const char* url :
       {"https://h", "h:1", "http://", "http://h:", "http://h:123456", "http://h/p", "http://u@h",
        "http://[::1", "http://h:1x", "http://[::1]x"}) {
    ::setenv("PONDER_URL", url, 1);
    EXPECT_FALSE(client_options("/tmp/x", true)) << url;
  }
  for (const char* url : {"http://h", "http://h:80/", "http://[::1]:7663", "http://[::1]"}) {
    ::setenv("PONDER_URL", url, 1);
    const auto options = client_options("/tmp/x", true);
    ASSERT_TRUE(options) << url;
    EXPECT_FALSE(options->may_start) << "a daemon elsewhere is never started";
  }
  ::unsetenv("PONDER_URL");
}

TEST(PercentEncodeTest, KeepsOnlyTheUnreserved) {
  EXPECT_EQ(percent_encode("aZ9-._~"), "aZ9-._~");
  EXPECT_EQ(percent_encode(std::string_view("/ ä\0&", 6)), "%2F%20%C3%A4%00%26");
}

}  // namespace
}  // namespace ponder::client
