// The resources but chat and events, over real sockets and a fake queue.
#include <fmt/core.h>

#include "tests/unit/daemon/server_fixture.h"

namespace ponder::daemon {
namespace {

class ApiTest : public ServedApi {
 protected:
  void SetUp() override {
    ServedApi::SetUp();
    serve();
  }
  const std::string job = "/v1/jobs/" + std::string(kJobId);
};

TEST_F(ApiTest, HealthSaysOneWordAndItsNumbers) {
  const RawResponse ready = ask(get("/health"));
  EXPECT_EQ(ready.status, 200);
  const json::value body = ready.parsed();
  EXPECT_EQ(body.at("state"), "ready");
  EXPECT_TRUE(body.at("reason").is_null());
  EXPECT_EQ(body.at("degraded"), json::array());
  EXPECT_EQ(
      body.at("model"),
      (json::object{
          {"id", "pebble"}, {"class", "demo"}, {"path", "/models/pebble.gguf"}, {"n_ctx", 32768}}));
  EXPECT_EQ(body.at("engine").at("pid").as_int64(), 4711);
  EXPECT_EQ(body.at("queue"),
            (json::object{{"running", 0}, {"ask", 0}, {"batch", 0}, {"limit", 1000}}));
  EXPECT_EQ(body.at("store"), (json::object{{"ok", true}, {"free_bytes", 1 << 30}}));
  for (const char* field : {"tcp", "version", "build", "uptime_s"})
    EXPECT_TRUE(body.as_object().contains(field)) << field;
}

TEST_F(ApiTest, HealthIsReadyOrBusyOrUnavailable) {
  const auto health = [&](GeneratorState state, const std::string& reason) {
    GeneratorStatus status = generator.status();
    status.state = state;
    status.reason = reason;
    generator.set_status(status);
    const RawResponse response = ask(get("/health"));
    return fmt::format("{} {}", response.status,
                       std::string(response.parsed().at("state").as_string()));
  };
  EXPECT_EQ(health(GeneratorState::loading, "reading weights"), "503 loading");
  EXPECT_EQ(health(GeneratorState::failed, "no model configured"), "503 failed");
  EXPECT_EQ(health(GeneratorState::ready, "no answer for 3 s"), "503 stalled");
  EXPECT_EQ(health(GeneratorState::ready, ""), "200 ready");
  queue->queue_status.running = 1;
  EXPECT_EQ(health(GeneratorState::ready, ""), "200 busy");
}

TEST_F(ApiTest, HealthFailsWhileTheStoreTakesNoWritesAndRecovers) {
  queue->queue_status.store_ok = false;
  queue->queue_status.store_reason = "the disk is full";
  const RawResponse full = ask(get("/health"));
  EXPECT_EQ(full.status, 503);
  EXPECT_EQ(full.parsed().at("state"), "failed");
  EXPECT_EQ(full.parsed().at("reason"), "the disk is full");
  EXPECT_EQ(full.parsed().at("store").at("ok"), false);
  queue->queue_status.store_ok = true;
  queue->queue_status.store_reason = "";
  const RawResponse ready = ask(get("/health"));
  EXPECT_EQ(ready.status, 200);
  EXPECT_TRUE(ready.parsed().at("reason").is_null());
}

TEST_F(ApiTest, ListsTheModelForBothFamiliesOfClients) {
  const json::value body = ask(get("/v1/models")).parsed();
  EXPECT_EQ(body.at("object"), "list");
  EXPECT_EQ(body.at("first_id"), "pebble");
  EXPECT_EQ(body.at("has_more"), false);
  const json::value& model = body.at("data").at(0);
  EXPECT_EQ(model.at("id"), "pebble");
  EXPECT_EQ(model.at("object"), "model");
  EXPECT_EQ(model.at("type"), "model");
  EXPECT_EQ(model.at("max_input_tokens").as_int64(), 32768);
  EXPECT_EQ(model.at("input_modalities"), json::array{"text"});
  EXPECT_EQ(ask(get("/v1/models/pebble")).parsed(), model);
  EXPECT_EQ(ask(get("/v1/models/other")).status, 404);
  generator.set_status({});
  const json::value none = ask(get("/v1/models")).parsed();
  EXPECT_EQ(none.at("data"), json::array());
  EXPECT_TRUE(none.at("first_id").is_null());
}

TEST_F(ApiTest, TokenizesUnderThreeNames) {
  EXPECT_EQ(ask(post("/v1/tokenize", R"({"text": "ab"})")).parsed(),
            *parse_json(R"({"tokens": [97, 98], "count": 2})"));
  EXPECT_EQ(ask(post("/v1/tokenize", R"({"content": "a", "special": true})")).parsed().at("tokens"),
            json::array{-97});
  EXPECT_EQ(ask(post("/v1/tokenize", R"({"prompt": ""})")).parsed().at("count").as_int64(), 0);
  const RawResponse missing = ask(post("/v1/tokenize", "{}"));
  EXPECT_EQ(missing.status, 400);
  EXPECT_EQ(missing.parsed().at("error").at("param"), "text");
}

TEST_F(ApiTest, SubmitsAJobAndSaysWhereItIs) {
  queue->on_submit = [](const jobs::JobSpec& spec) -> Result<jobs::Submitted> {
    json::object made = envelope("queued");
    made["label"] = spec.label;
    return jobs::Submitted{made, spec.task != "twin"};
  };
  const RawResponse created = ask(post("/v1/jobs", R"({"task": "x", "label": "night"})"));
  EXPECT_EQ(created.status, 201);
  EXPECT_EQ(created.headers.at("location"), job);
  EXPECT_EQ(created.parsed().at("label"), "night");
  const RawResponse twin = ask(post("/v1/jobs", R"({"task": "twin"})"));
  EXPECT_EQ(twin.status, 200);
  EXPECT_EQ(twin.headers.count("location"), 0u);
}

TEST_F(ApiTest, RefusesABadSubmissionWithItsField) {
  const RawResponse neither = ask(post("/v1/jobs", "{}"));
  EXPECT_EQ(neither.status, 400);
  EXPECT_EQ(neither.code(), "bad_request");
}

TEST_F(ApiTest, PassesTheQueuesErrorsOn) {
  for (const auto& [code, status] : {std::pair{ErrorCode::context_length_exceeded, 400},
                                     {ErrorCode::idempotency_mismatch, 409},
                                     {ErrorCode::queue_full, 429},
                                     {ErrorCode::storage, 503},
                                     {ErrorCode::loading, 503}}) {
    queue->on_submit = [why = code](const jobs::JobSpec&) -> Result<jobs::Submitted> {
      return fail(why, "no");
    };
    const RawResponse response = ask(post("/v1/jobs", R"({"task": "x"})"));
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.code(), to_string(code));
  }
  queue->on_get = [](const std::string&) -> Result<json::object> {
    return fail(ErrorCode::job_unknown, "no");
  };
  EXPECT_EQ(ask(get(job)).status, 404);
  queue->on_remove = [](const std::string&) -> Result<void> {
    return fail(ErrorCode::not_terminal, "no");
  };
  EXPECT_EQ(ask("DELETE " + job + " HTTP/1.1\r\nHost: a\r\n\r\n").status, 409);
  queue->on_result = [](const std::string&, jobs::Part, std::int64_t,
                        std::int64_t) -> Result<jobs::ResultPage> {
    return fail(ErrorCode::gone, "expired");
  };
  EXPECT_EQ(ask(get(job + "/result")).status, 410);
}

TEST_F(ApiTest, KnowsNoJobByAMalformedId) {
  for (const char* id : {"x", "..", "01K0AAAAAAAAAAAAAAAAAAAAAA", "01k0aaaaaaaaaaaaaaaaaaaaaaa",
                         "01k0aaaaaaaaaaaaaaaaaaaaa.", "%20", "sha256:0", "@last"}) {
    const RawResponse response = ask(get("/v1/jobs/" + std::string(id)));
    EXPECT_TRUE(response.status == 404 || response.status == 400) << id << response.status;
  }
}

TEST_F(ApiTest, GetsAJobAtOnceOrAfterAWait) {
  queue->on_get = [](const std::string& id) {
    EXPECT_EQ(id, kJobId);
    return envelope("running");
  };
  EXPECT_EQ(ask(get(job)).parsed().at("state"), "running");
  EXPECT_EQ(ask(get(job + "?wait_s=0")).status, 200);

  RawClient waiting = on_unix();
  waiting.send(get(job + "?wait_s=1.5"));
  ASSERT_TRUE(queue->wait_until_waiting());
  EXPECT_EQ(queue->last_wait_ms(), 1500);
  queue->end_waits(envelope("completed"));
  EXPECT_EQ(waiting.response().parsed().at("state"), "completed");

  waiting.send(get(job + "?wait_s=301"));
  ASSERT_TRUE(queue->wait_until_waiting());
  EXPECT_EQ(queue->last_wait_ms(), 300'000);
  queue->end_waits(envelope("running"));
  EXPECT_EQ(waiting.response().parsed().at("note"), "wait_s was lowered to 300");

  waiting.send(get(job + "?wait_s=301"));
  ASSERT_TRUE(queue->wait_until_waiting());
  json::object noted = envelope("running");
  noted["note"] = "the daemon was stopped";
  queue->end_waits(noted);
  EXPECT_EQ(waiting.response().parsed().at("note"),
            "the daemon was stopped; wait_s was lowered to 300");
  for (const char* bad : {"-1", "x", "", "nan", "inf", "1e3", "0x1", "1 ", "1;2"})
    EXPECT_EQ(ask(get(job + "?wait_s=" + (bad == std::string("1 ") ? "1%20" : bad))).status, 400)
        << bad;
}

TEST_F(ApiTest, ALookSaysWhatWasSeenAndWhetherTheIdWasTold) {
  using jobs::State;
  queue->on_get = [](const std::string&) { return envelope("running"); };
  ask(get(job));
  EXPECT_FALSE(queue->last_look().told);
  EXPECT_FALSE(queue->last_look().seen);
  ask(get(job + "?told=true"));
  EXPECT_TRUE(queue->last_look().told);
  ask(get(job + "?told=false&seen=queued"));
  EXPECT_FALSE(queue->last_look().told);
  EXPECT_EQ(queue->last_look().seen, std::pair(State::queued, std::string()));
  ask(get(job + "?seen=running:thinking"));
  EXPECT_EQ(queue->last_look().seen, std::pair(State::running, std::string("thinking")));
  for (const char* bad : {"told=yes", "told=1", "seen=asleep", "seen=:thinking"})
    EXPECT_EQ(ask(get(job + "?" + bad)).status, 400) << bad;
}

TEST_F(ApiTest, GivesUpAWaitWhoseClientIsGone) {
  RawClient waiting = on_unix();
  waiting.send(get(job + "?wait_s=300"));
  ASSERT_TRUE(queue->wait_until_waiting());
  waiting.close();
  EXPECT_TRUE(queue->wait_until_forgotten());
}

TEST_F(ApiTest, ListsWithFilters) {
  jobs::ListFilter seen;
  queue->on_list = [&](const jobs::ListFilter& filter) -> Result<jobs::ListPage> {
    seen = filter;
    return jobs::ListPage{{envelope("queued"), envelope("running")}, kJobId};
  };
  const json::value page =
      ask(get("/v1/jobs?state=queued&workspace=%2Fhome%2Fa+b&label=l&limit=2&before=" +
              std::string(kJobId)))
          .parsed();
  EXPECT_EQ(page.at("jobs").as_array().size(), 2u);
  EXPECT_EQ(page.at("next_before"), kJobId);
  EXPECT_EQ(seen.state, jobs::State::queued);
  EXPECT_EQ(seen.workspace, "/home/a b");
  EXPECT_EQ(seen.label, "l");
  EXPECT_EQ(seen.limit, 2);
  EXPECT_EQ(seen.before, kJobId);
  for (const char* bad : {"state=done", "limit=0", "limit=-1", "limit=1e1", "limit=",
                          "limit=99999999999999999999", "before=x", "workspace=%ff", "label=%00"})
    EXPECT_EQ(ask(get("/v1/jobs?" + std::string(bad))).status, 400) << bad;
}

TEST_F(ApiTest, PagesAResult) {
  queue->on_result = [](const std::string& id, jobs::Part part, std::int64_t offset,
                        std::int64_t limit) {
    jobs::ResultPage page;
    page.job_id = id;
    page.state = jobs::State::completed;
    page.part = part;
    page.offset = offset;
    page.next_offset = limit < 0 ? -1 : offset + limit;
    page.total_chars = 10;
    page.truncated = limit >= 0;
    page.text = "text";
    return Result<jobs::ResultPage>(page);
  };
  EXPECT_EQ(ask(get(job + "/result")).parsed(),
            *parse_json(fmt::format(R"({{"job_id": "{}", "state": "completed", "part": "answer",
              "offset": 0, "next_offset": null, "total_chars": 10, "truncated": false, "text": "text"}})",
                                    kJobId)));
  const json::value second = ask(get(job + "/result?part=reasoning&offset=3&limit=4")).parsed();
  EXPECT_EQ(second.at("part"), "reasoning");
  EXPECT_EQ(second.at("next_offset").as_int64(), 7);
  for (const char* bad : {"part=all", "offset=-1", "limit=-1", "offset=x"})
    EXPECT_EQ(ask(get(job + "/result?" + bad)).status, 400) << bad;
}

TEST_F(ApiTest, CancelsPinsAndDeletes) {
  queue->on_cancel = [](const std::string&) { return envelope("cancelled"); };
  queue->on_remove = [](const std::string&) { return Result<void>(); };
  bool pinned = false;
  queue->on_pin = [&](const std::string&, bool value) {
    pinned = value;
    return envelope("completed");
  };
  EXPECT_EQ(ask("POST " + job + "/cancel HTTP/1.1\r\nHost: a\r\n\r\n").parsed().at("state"),
            "cancelled");
  EXPECT_EQ(ask(post(job + "/pin", R"({"pinned": true})")).status, 200);
  EXPECT_TRUE(pinned);
  EXPECT_EQ(ask(post(job + "/pin", R"({"pinned": false})")).status, 200);
  EXPECT_FALSE(pinned);
  EXPECT_EQ(ask(post(job + "/pin", "{}")).status, 400);
  EXPECT_EQ(ask(post(job + "/pin", R"({"pinned": 1})")).status, 400);
  RawClient client = on_unix();
  const RawResponse removed =
      client.request("DELETE " + job + " HTTP/1.1\r\nHost: a\r\n\r\n", true);
  EXPECT_EQ(removed.status, 204);
  EXPECT_EQ(client.request(get("/health")).status, 200) << "204 has no body";
}

}  // namespace
}  // namespace ponder::daemon
