#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "clients/cpp/daemon_client.h"
#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace ponder::client {
namespace {
using client_test::Peer;
using client_test::ScriptedServer;
using client_test::SeenRequest;
using client_test::TempDir;

class DaemonStreamTest : public testing::Test {
 protected:
  std::string socket() const { return home_ / "ponderd.sock"; }
  DaemonClient client() const {
    ClientOptions options;
    options.places = *find_places(home_.path());
    options.may_start = false;
    return DaemonClient(options);
  }
  Result<void> read_all(Interrupt* interrupt = nullptr) {
    return client().stream(
        "/v1/jobs/x/events?after=0",
        [this](const ServerEvent& event) {
          got_.push_back(event.id + "/" + event.event + "/" + event.data);
          return event.event != "last";
        },
        interrupt);
  }
  TempDir home_;
  std::vector<std::string> got_;
};

TEST_F(DaemonStreamTest, DeliversEventsAsTheyCome) {
  ScriptedServer server(socket(), [](const SeenRequest& request, Peer& peer) {
    EXPECT_THAT(request.head, testing::HasSubstr("Accept: text/event-stream\r\n"));
    peer.begin_events();
    peer.event("1", "state", json::object{{"state", "running"}});
    peer.event("2", "answer", json::object{{"text", "line\nü"}});
    peer.end_events();
  });
  ASSERT_TRUE(read_all());
  EXPECT_THAT(got_, testing::ElementsAre(R"(1/state/{"state":"running"})",
                                         R"(2/answer/{"text":"line\nü"})"));
}

TEST_F(DaemonStreamTest, AResponseThatIsSplitAtEveryByteGivesTheSame) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.send_split(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        "9\r\n: ping\n\ni\r\n15\r\nd: 1\nevent: a\ndata: \n\r\n7\r\ndata: "
        "b\r\n2\r\n\n\n\r\n0\r\n\r\n",
        1);
  });
  ASSERT_TRUE(read_all());
  EXPECT_THAT(got_, testing::ElementsAre("1/a/\nb"));
}

TEST_F(DaemonStreamTest, TheReaderMayStopIt) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("1", "last", nullptr);
    peer.event("2", "more", nullptr);
    peer.wait_until_gone();
  });
  ASSERT_TRUE(read_all());
  EXPECT_EQ(got_.size(), 1u);
}

TEST_F(DaemonStreamTest, AnInterruptEndsIt) {
  Interrupt interrupt;
  ScriptedServer server(socket(), [&](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("1", "state", nullptr);
    interrupt.trigger();
    peer.wait_until_gone();
  });
  const auto read = read_all(&interrupt);
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::cancelled);
}

TEST_F(DaemonStreamTest, AStreamThatBreaksOffIsNotTakenForAWholeOne) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("1", "answer", nullptr);
  });
  const auto read = read_all();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::stream_lost);
  EXPECT_EQ(got_.size(), 1u);
}

TEST_F(DaemonStreamTest, ARefusedStreamIsTheServersError) {
  ScriptedServer server(socket(), [](const SeenRequest&, Peer& peer) {
    peer.answer(404, json::object{{"error", {{"code", "job_unknown"}, {"message", "no such"}}}});
  });
  const auto read = read_all();
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code, ErrorCode::job_unknown);
  EXPECT_EQ(read.error().message, "no such");
}

}  // namespace
}  // namespace ponder::client
