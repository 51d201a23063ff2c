// GET /v1/jobs/{id}/events: order, resuming, slow readers.
#include <fmt/core.h>

#include "tests/unit/daemon/server_fixture.h"

namespace ponder::daemon {
namespace {

class Events : public ServedApi {
 protected:
  void SetUp() override {
    ServedApi::SetUp();
    queue->on_get = [](const std::string&) { return envelope("running"); };
    queue->on_events = [this](const std::string&, std::int64_t after) {
      std::vector<jobs::JobEvent> out;
      for (const jobs::JobEvent& e : history)
        if (e.position > after) out.push_back(e);
      return out;
    };
  }
  void happen(const std::string& type, json::object data) {
    history.push_back({static_cast<std::int64_t>(history.size()) + 1, type, std::move(data)});
  }
  std::string target(const std::string& query = {}) {
    return "/v1/jobs/" + std::string(kJobId) + "/events" + query;
  }
  std::vector<jobs::JobEvent> history;
};

TEST_F(Events, SendsEachWithItsPosition) {
  serve();
  happen("state", {{"state", "running"}});
  happen("answer", {{"text", "two\nlines"}});
  happen("end", envelope("completed"));
  const RawResponse response = ask(get(target()));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body,
            fmt::format("id: 1\nevent: state\ndata: {{\"state\":\"running\"}}\n\n"
                        "id: 2\nevent: answer\ndata: {{\"text\":\"two\\nlines\"}}\n\n"
                        "id: 3\nevent: end\ndata: {}\n\n",
                        to_json(envelope("completed"))));
}

TEST_F(Events, GoesOnAfterAPosition) {
  serve();
  for (int i = 0; i < 5; ++i)
    happen("answer", {{"text", "x"}});
  happen("end", envelope("completed"));
  const std::string after_three = ask(get(target("?after=3"))).body;
  EXPECT_EQ(after_three.rfind("id: 4\n", 0), 0u);
  const std::string by_header =
      ask("GET " + target() + " HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 3\r\n\r\n").body;
  EXPECT_EQ(by_header, after_three);
  const std::string both =
      ask("GET " + target("?after=5") + " HTTP/1.1\r\nHost: a\r\nLast-Event-ID: 3\r\n\r\n").body;
  EXPECT_EQ(both.rfind("id: 6\n", 0), 0u);
  EXPECT_EQ(ask(get(target("?after=-1"))).status, 400);
  EXPECT_EQ(ask(get(target("?after=x"))).status, 400);
  EXPECT_EQ(ask("GET " + target() + " HTTP/1.1\r\nHost: a\r\nLast-Event-ID: x\r\n\r\n").status,
            400);
}

TEST_F(Events, RefusesUnknownAndExpiredJobs) {
  serve();
  queue->on_get = [](const std::string&) -> Result<json::object> {
    return fail(ErrorCode::job_unknown, "no");
  };
  EXPECT_EQ(ask(get(target())).status, 404);
  queue->on_get = [](const std::string&) { return envelope("expired"); };
  EXPECT_EQ(ask(get(target())).status, 410);
}

TEST_F(Events, BeatsWhileNothingHappensAndGivesUpWithItsClient) {
  heartbeat_ms = 20;
  serve();
  RawClient client = on_unix();
  client.send(get(target()));
  EXPECT_TRUE(client.read_until(": ping\n\n"));
  client.close();
  EXPECT_TRUE(queue->wait_until_forgotten());
}

// Eight mebibytes come at once from the queue and a reader takes them slowly: nothing is lost,
// nothing comes twice, and no more than the bound is held for it.
TEST_F(Events, HoldsLittleForAReaderThatIsSlow) {
  ServerLimits limits;
  limits.max_output_bytes = 1u << 20;
  serve(limits);
  for (int i = 0; i < 8000; ++i)
    happen("answer", {{"text", std::string(1024, 'x')}});
  happen("end", envelope("completed"));
  const RawResponse response = ask(get(target()));
  ASSERT_EQ(response.status, 200);
  std::int64_t next = 1;
  for (std::size_t at = 0; (at = response.body.find("id: ", at)) != response.body.npos; ++at)
    ASSERT_EQ(std::stoll(response.body.substr(at + 4, 10)), next++);
  EXPECT_EQ(next, 8002);
  EXPECT_GT(queue->subscriptions(), 1) << "it was never paused";
}

}  // namespace
}  // namespace ponder::daemon
