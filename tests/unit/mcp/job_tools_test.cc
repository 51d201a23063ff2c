// status, result, cancel and health.
#include <fstream>

#include "tests/unit/mcp/tools_fixture.h"

namespace ponder::mcp {
namespace {
using ::testing::EndsWith;
using testing::envelope;
using testing::FakeJob;
using ::testing::HasSubstr;
using testing::id_of;
using ::testing::Not;
using ::testing::StartsWith;
using testing::ToolsTest;

TEST_F(ToolsTest, StatusOfOneJobIsItsEnvelopeWithoutTexts) {
  FakeJob j = job(1, "running", "partial text");
  j.envelope["answer"] = "partial text";
  j.envelope["phase"] = "prefill";
  j.envelope["prefill_done"] = 100;
  j.envelope["prefill_total"] = 300;
  daemon_.put(j);
  const ToolResult r = good("status", {{"job_id", id_of(1)}});
  EXPECT_TRUE(r.structured.at("answer").is_null());
  EXPECT_THAT(r.text, HasSubstr("running (prefill), 100 of 300 prompt tokens read"));
  EXPECT_THAT(r.text, HasSubstr("Next call: status"));
}

TEST_F(ToolsTest, TheTextOfAJobLeavesOutNothingOfItsEnvelope) {
  FakeJob j = job(1, "failed");
  json::object& e = j.envelope;
  e["reason"] = "engine_error";
  e["workspace"] = "/w/project";
  e["queue_s"] = 1.5;
  e["tokens_per_s"] = 12.25;
  e["cache"] = json::object{{"path", "radix"}};
  e["model"] = "pebble";
  e["parent_id"] = id_of(7);
  e["attempt"] = 2;
  e["pinned"] = true;
  e["truncated"] = false;
  e["error"] = json::object{
      {"code", "engine_error"}, {"message", "the engine broke"}, {"hint", "run ponder doctor"}};
  daemon_.put(j);
  for (const char* tool : {"status", "cancel"}) {
    const std::string said = good(tool, {{"job_id", id_of(1)}}).text;
    for (const std::string part :
         {"workspace \"/w/project\"", "queue_s 1.5", "tokens_per_s 12.25", "{\"path\":\"radix\"}",
          "model \"pebble\"", "attempt 2", "pinned true", "the engine broke", "run ponder doctor",
          "created_at", "reasoning_chars 90", "tokens.reserved 100"})
      EXPECT_THAT(said, HasSubstr(part)) << tool;
    EXPECT_THAT(said, HasSubstr("parent_id \"" + id_of(7)));
    EXPECT_THAT(said, Not(HasSubstr("truncated"))) << "a no";
  }
}

TEST_F(ToolsTest, StatusOfAKnownJobIsNeverAnError) {
  for (const char* state : {"queued", "running", "completed", "incomplete", "failed", "cancelled",
                            "interrupted", "expired"}) {
    daemon_.put(job(1, state));
    EXPECT_EQ(text(good("status", {{"job_id", id_of(1)}}).structured, "state"), state);
    EXPECT_EQ(text(good("status", {{"job_id", id_of(1)}, {"wait_s", 5}}).structured, "state"),
              state);
  }
}

// T4, Q00/ouroboros#1423, whip#58: a wait that returned on every event was polled a hundred times a
// job.
TEST_F(ToolsTest, StatusWakesOnAStateOrPhaseChangeOnly) {
  FakeJob more_tokens = job(1, "running");
  more_tokens.envelope["tokens"].as_object()["reasoning"] = 999;
  FakeJob answering = job(1, "running");
  answering.envelope["phase"] = "answering";
  daemon_.put(job(1, "running"));
  daemon_.moves = {more_tokens, more_tokens, answering, job(1, "completed")};
  const ToolResult r = good("status", {{"job_id", id_of(1)}, {"wait_s", 50}});
  EXPECT_EQ(text(r.structured, "phase"), "answering");
  EXPECT_EQ(daemon_.moves.size(), 1u);
}

TEST_F(ToolsTest, StatusMissesNoChangeBetweenItsTwoLooks) {
  daemon_.put(job(1, "queued"));
  daemon_.after_look = [this] { daemon_.put(job(1, "running")); };
  const std::int64_t began = clock_.steady_ms();
  const ToolResult r = good("status", {{"job_id", id_of(1)}, {"wait_s", 50}});
  EXPECT_EQ(text(r.structured, "state"), "running");
  EXPECT_EQ(clock_.steady_ms(), began);
  good("status", {{"job_ids", json::array{id_of(1)}}, {"wait_s", 1}});
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs/").target, HasSubstr("seen=running:thinking"));
}

TEST_F(ToolsTest, AStatusThatWaitsOutlivesARestartOfTheDaemonButNotAForeverLostOne) {
  const std::vector<json::object> calls{{{"job_id", id_of(1)}, {"wait_s", 50}},
                                        {{"job_ids", json::array{id_of(1)}}, {"wait_s", 50}},
                                        {{"wait_s", 50}}};
  for (const json::object& arguments : calls) {
    SCOPED_TRACE(to_json(arguments));
    daemon_.put(job(1, "running"));
    daemon_.moves = {job(1, "completed")};
    daemon_.lost_waits = 1;
    EXPECT_THAT(good("status", arguments).text, HasSubstr("completed"));
  }
  daemon_.put(job(1, "running"));
  daemon_.lost_waits = 1000;
  EXPECT_THAT(failing("status", {{"wait_s", 50}}).text, HasSubstr("the connection broke"));
}

// T3, anthropics/claude-code#78566: the caller asked to wait longer than any client lets it.
TEST_F(ToolsTest, StatusWaitsNoLongerThanItsBound) {
  daemon_.put(job(1, "running"));
  const std::int64_t began = clock_.steady_ms();
  const ToolResult r = good("status", {{"job_id", id_of(1)}, {"wait_s", 9999}});
  EXPECT_LE(clock_.steady_ms() - began, 50'500);
  EXPECT_GE(clock_.steady_ms() - began, 49'000);
  EXPECT_THAT(text(r.structured, "note"), HasSubstr("lowered from 9999 to 50"));
}

TEST_F(ToolsTest, StatusOfSeveralWakesWhenOneOfThemMoves) {
  daemon_.put(job(1, "completed"));
  daemon_.put(job(2, "running"));
  daemon_.put(job(3, "running"));
  daemon_.moves = {job(2, "running"), job(2, "completed")};
  const ToolResult r =
      good("status", {{"job_ids", json::array{id_of(1), id_of(2), id_of(3)}}, {"wait_s", 50}});
  ASSERT_EQ(r.structured.at("jobs").as_array().size(), 3u);
  EXPECT_EQ(r.structured.at("jobs").at(1).at("state").as_string(), "completed");
  EXPECT_THAT(r.text, EndsWith("3 jobs: 2 completed, 1 running"));
  for (int n : {1, 2, 3})
    EXPECT_THAT(r.text, HasSubstr(id_of(n)));
}

TEST_F(ToolsTest, StatusOfSeveralNamesTheUnknownAndShowsTheOthers) {
  daemon_.put(job(1, "running"));
  const ToolResult r = failing("status", {{"job_ids", json::array{id_of(1), id_of(2), "x"}}});
  EXPECT_THAT(r.text, HasSubstr("no job " + id_of(2)));
  EXPECT_THAT(r.text, HasSubstr("no job \"x\""));
  EXPECT_THAT(r.text, HasSubstr("job " + id_of(1) + " running"));
}

TEST_F(ToolsTest, StatusWithoutIdsListsThisWorkspaceUnlessAllAreWanted) {
  const ToolResult none = good("status", {});
  EXPECT_TRUE(none.structured.at("jobs").as_array().empty());
  EXPECT_THAT(none.text, EndsWith("0 jobs"));
  daemon_.put(job(1, "completed"));
  FakeJob waiting = job(2, "queued");
  waiting.envelope["position"] = 4;
  daemon_.put(waiting);
  const ToolResult some = good("status", {});
  EXPECT_THAT(some.text, HasSubstr("position 4"));
  EXPECT_EQ(some.structured.at("jobs").at(0).at("job_id").as_string(), id_of(2));
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs?").target, HasSubstr("&workspace=%2F"));
  good("status", {{"all_workspaces", true}});
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs?").target, Not(HasSubstr("workspace")));
}

// T15, anthropics/claude-code#29193: after a compaction of its context the agent had forgotten its
// ids and did the work again.
TEST_F(ToolsTest, AListSaysOfUnlabelledJobsWhatTheyWereAsked) {
  FakeJob named = job(1, "running");
  named.envelope["label"] = "night work";
  FakeJob plain = job(2, "running");
  plain.request = "How many\n" + std::string(200, 'x');
  FakeJob with_context = job(3, "running");
  with_context.request = "<context>\n" + std::string(300, 'c') + "\n</context>\n\nWhy so?";
  for (const FakeJob& each : {named, plain, with_context})
    daemon_.put(each);
  const ToolResult list = good("status", {});
  EXPECT_THAT(list.text, HasSubstr("\"night work\""));
  EXPECT_THAT(list.text, HasSubstr("\"How many " + std::string(91, 'x') + "\""));
  EXPECT_THAT(list.text, HasSubstr("Why so?\""));
  EXPECT_THAT(list.text, Not(HasSubstr("<context>")));
  const json::array& jobs = list.structured.at("jobs").as_array();
  ASSERT_EQ(jobs.size(), 3u);
  EXPECT_TRUE(jobs.at(2).at("preview").is_null()) << "what has a label is known by it";
  EXPECT_EQ(count_code_points(text(jobs.at(1).as_object(), "preview")), 100);
}

TEST_F(ToolsTest, AListThatSaysWhatWasAskedNeedsNoRequest) {
  for (const int n : {1, 2}) {
    FakeJob asked = job(n, "running");
    asked.request = "another text";
    asked.envelope["preview"] = n == 1 ? "Why is it so?" : "";
    daemon_.put(asked);
  }
  const ToolResult list = good("status", {});
  EXPECT_THAT(list.text, HasSubstr("\"Why is it so?\""));
  EXPECT_THAT(list.text, Not(HasSubstr("another text")));
  const json::array& jobs = list.structured.at("jobs").as_array();
  EXPECT_EQ(text(jobs.at(1).as_object(), "preview"), "Why is it so?");
  EXPECT_TRUE(jobs.at(0).at("preview").is_null());
  EXPECT_THAT(good("status", {{"wait_s", 0.01}}).text, HasSubstr("\"Why is it so?\""));
}

TEST_F(ToolsTest, ResultPagesJoinToTheWholeText) {
  std::string answer;
  for (int i = 0; i < 5'000; ++i)
    answer += i % 7 == 0 ? "\xF0\x9F\x98\x80" : "a";
  daemon_.put(job(1, "completed", answer));
  std::string joined;
  std::int64_t offset = 0;
  int pages = 0;
  while (offset >= 0) {
    const ToolResult r = good("result", {{"job_id", id_of(1)}, {"offset", offset}, {"limit", 777}});
    ++pages;
    EXPECT_THAT(r.text, StartsWith(fmt::format("[page {} of 7: ", pages)));
    joined += text(r.structured, "answer");
    offset = whole_of(r.structured, "next_offset", -1);
    EXPECT_EQ(flag_of(r.structured, "truncated"), offset >= 0);
  }
  EXPECT_EQ(joined, answer);
}

TEST_F(ToolsTest, ResultHonoursALimitUpToTheLargestAndLowersMore) {
  daemon_.put(job(1, "completed", std::string(30'000, 'x')));
  EXPECT_EQ(
      text(good("result", {{"job_id", id_of(1)}, {"limit", 20'000}}).structured, "answer").size(),
      20'000u);
  const ToolResult r = good("result", {{"job_id", id_of(1)}, {"limit", 25'000}});
  EXPECT_EQ(text(r.structured, "answer").size(), 20'000u);
  EXPECT_THAT(text(r.structured, "note"), HasSubstr("lowered from 25000 to 20000"));
}

TEST_F(ToolsTest, ResultOfAnAnswerThatIsNotThereIsAnError) {
  for (const char* state :
       {"queued", "running", "incomplete", "failed", "cancelled", "interrupted", "expired"}) {
    daemon_.put(job(1, state, "partial"));
    const ToolResult r = failing("result", {{"job_id", id_of(1)}});
    EXPECT_THAT(r.text, HasSubstr(id_of(1)));
    EXPECT_THAT(r.text, HasSubstr(std::string(state)));
    EXPECT_THAT(r.text, std::string_view(state) == "expired" ? HasSubstr("Call status")
                                                             : HasSubstr("Next call: "));
  }
}

TEST_F(ToolsTest, WhereOnlyThinkingExistsTheNextCallReadsTheThinking) {
  for (const char* state : {"incomplete", "failed", "cancelled", "interrupted"}) {
    FakeJob thought = job(1, state);
    thought.envelope["total_chars"] = nullptr;
    daemon_.put(thought);
    daemon_.submitted = thought;
    for (const ToolResult& r :
         {failing("result", {{"job_id", id_of(1)}}), failing("ask", {{"question", "q"}})}) {
      EXPECT_THAT(r.text, HasSubstr("Partial answer so far: 0 characters"));
      EXPECT_THAT(r.text,
                  HasSubstr(fmt::format(R"(Next call: result {{"job_id":"{}","part":"reasoning"}})",
                                        id_of(1))));
      EXPECT_THAT(r.text, HasSubstr("result --part reasoning " + id_of(1)));
    }
    thought.envelope["total_chars"] = 0;
    daemon_.put(thought);
    const ToolResult status = good("status", {{"job_id", id_of(1)}});
    EXPECT_EQ(status.structured.at("next").at("mcp").at("arguments").at("part").as_string(),
              "reasoning");
  }
}

TEST_F(ToolsTest, AnInterruptedAskSaysTheCauseAndToAskAgain) {
  daemon_.submitted = job(1, "interrupted");
  EXPECT_THAT(failing("ask", {{"question", "q"}}).text,
              ::testing::AllOf(HasSubstr("The daemon stopped or died"), HasSubstr("ask again")));
  daemon_.submitted.envelope["error"] = json::object{{"message", "the daemon was killed"}};
  const std::string told = failing("ask", {{"question", "q"}}).text;
  EXPECT_THAT(told, HasSubstr("the daemon was killed."));
  EXPECT_THAT(told, Not(HasSubstr("stopped or died")));
  EXPECT_THAT(told, HasSubstr("ask again"));
}

TEST_F(ToolsTest, ResultReadsReasoningAndPartialOfAnyJob) {
  daemon_.put(cut(1, "incomplete", "deadline", "half an answ"));
  ToolResult r = good("result", {{"job_id", id_of(1)}, {"part", "partial"}});
  EXPECT_THAT(r.text,
              StartsWith("[not a whole answer: the job ended incomplete]\nhalf an answ\n---\n"));
  EXPECT_EQ(text(r.structured, "text"), "half an answ");
  EXPECT_EQ(text(r.structured, "part"), "partial");
  EXPECT_TRUE(r.structured.at("answer").is_null());
  r = good("result", {{"job_id", id_of(1)}, {"part", "reasoning"}, {"limit", 4}});
  EXPECT_EQ(text(r.structured, "text"), "thou");
  EXPECT_THAT(r.text, HasSubstr(R"("offset":4,"part":"reasoning")"));
  EXPECT_EQ(whole_of(r.structured, "next_offset"), 4);
  daemon_.put(job(1, "running", "half"));
  EXPECT_THAT(good("result", {{"job_id", id_of(1)}, {"part", "partial"}}).text,
              HasSubstr("[Next call: status "))
      << "as the other half says";
}

TEST_F(ToolsTest, AnOffsetBehindTheEndSaysSo) {
  daemon_.put(job(1, "completed", "short"));
  for (const int offset : {5, 50}) {
    const ToolResult r = good("result", {{"job_id", id_of(1)}, {"offset", offset}});
    EXPECT_THAT(r.text, HasSubstr("nothing at offset " + std::to_string(offset)));
    EXPECT_THAT(r.text, HasSubstr("has 5 characters"));
    EXPECT_EQ(text(r.structured, "answer"), "");
  }
}

TEST_F(ToolsTest, ResultIntoAFileWritesAllOfItAndSaysWhere) {
  const std::string answer = "line\n" + std::string(5'000, 'x') + "\xC3\xA9";
  daemon_.put(job(1, "completed", answer));
  const ToolResult r =
      good("result", {{"job_id", id_of(1)}, {"out_file", "out.md"}, {"limit", 10}});
  std::ifstream in(dir_ / "out.md", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), answer);
  EXPECT_THAT(r.text, HasSubstr((dir_ / "out.md").string()));
  EXPECT_THAT(r.text, HasSubstr("5006 characters (5007 bytes)"));
  EXPECT_EQ(text(r.structured, "out_file"), (dir_ / "out.md").string());
  EXPECT_THAT(failing("result", {{"job_id", id_of(1)}, {"out_file", "../x"}}).text,
              HasSubstr("outside"));
  EXPECT_THAT(failing("result", {{"job_id", id_of(1)}, {"out_file", dir_.string()}}).text,
              HasSubstr("file"));
}

TEST_F(ToolsTest, CancelGivesTheFinalEnvelopeAndIsIdempotent) {
  daemon_.put(job(1, "running"));
  for (int i = 0; i < 2; ++i) {
    const ToolResult r = good("cancel", {{"job_id", id_of(1)}});
    EXPECT_EQ(text(r.structured, "state"), "cancelled");
    EXPECT_THAT(r.text, HasSubstr(R"("part":"partial")"));
  }
  FakeJob only_thought = job(2, "running");
  only_thought.envelope["total_chars"] = 0;
  daemon_.put(only_thought);
  EXPECT_THAT(good("cancel", {{"job_id", id_of(2)}}).text, HasSubstr(R"("part":"reasoning")"))
      << "what there is to read";
}

json::object healthy() {
  return {
      {"state", "busy"},
      {"reason", nullptr},
      {"degraded", json::array{"slow"}},
      {"model",
       json::object{{"id", "pebble"}, {"class", "demo"}, {"path", "/m.gguf"}, {"n_ctx", 32768}}},
      {"engine", json::object{{"pid", 4711},
                              {"device", "cpu"},
                              {"restarts", 3},
                              {"last_error", "it was killed"},
                              {"uptime_s", 77.0},
                              {"tokens_per_s", 4.1},
                              {"usual_tokens_per_s", 12.6}}},
      {"queue", json::object{{"running", 1}, {"ask", 0}, {"batch", 2}, {"limit", 1000}}},
      {"store", json::object{{"ok", false}, {"free_bytes", 54321}}},
      {"tcp",
       json::object{{"addresses", json::array{"127.0.0.1:7663"}}, {"reason", "one is taken"}}},
      {"uptime_s", 88.0},
      {"version", "0.1.0"},
      {"build", "abc"}};
}

TEST_F(ToolsTest, HealthSaysAllOfItAndHowToInstallARealModel) {
  daemon_.health_document = healthy();
  const ToolResult r = good("health", {});
  for (const char* part : {"State: busy",
                           "slow",
                           "pebble",
                           "32768",
                           "1 running",
                           "2 batch",
                           "0.1.0",
                           "abc",
                           "1.2.3",
                           "not for real work",
                           "/bin/ponderd --home /h --detach --model",
                           "(demo)",
                           "process 4711",
                           "3 restarts",
                           "up 77 s",
                           "last error: it was killed",
                           "4.1 tokens/s, usually 12.6",
                           "refuses to write, 54321 bytes",
                           "127.0.0.1:7663; one is taken",
                           "Up: 88 s"})
    EXPECT_THAT(r.text, HasSubstr(part));
  EXPECT_EQ(text(r.structured, "state"), "busy");
  EXPECT_TRUE(daemon_.requests().empty());
}

TEST_F(ToolsTest, HealthSaysOfSpeedsWhatWasMeasured) {
  daemon_.health_document = healthy();
  json::object& engine = daemon_.health_document["engine"].as_object();
  engine["usual_tokens_per_s"] = nullptr;
  EXPECT_THAT(good("health", {}).text, HasSubstr("Speed: 4.1 tokens/s.\n"));
  engine["tokens_per_s"] = nullptr;
  EXPECT_THAT(good("health", {}).text, Not(HasSubstr("Speed")));
  engine["usual_tokens_per_s"] = 12.6;
  EXPECT_THAT(good("health", {}).text, HasSubstr("Speed: usually 12.6 tokens/s.\n"));
}

TEST_F(ToolsTest, HealthProbeGeneratesOneToken) {
  daemon_.health_document = healthy();
  EXPECT_THAT(good("health", {{"probe", true}}).text, HasSubstr("Probe: one token"));
  EXPECT_EQ(daemon_.last("POST", "/v1/chat/completions").body.at("max_tokens").as_int64(), 1);
  daemon_.failures = {{ErrorCode::loading, "still loading"}};
  const ToolResult r = good("health", {{"probe", true}});
  EXPECT_THAT(r.text, HasSubstr("Probe failed: still loading"));
  EXPECT_FALSE(flag_of(object_of(r.structured, "probe"), "ok"));
}

TEST_F(ToolsTest, HealthOfNoDaemonIsDownAndStartsNothing) {
  daemon_.up = false;
  const ToolResult r = good("health", {{"probe", true}});
  EXPECT_EQ(text(r.structured, "state"), "down");
  EXPECT_THAT(r.text, HasSubstr("no daemon is running"));
  EXPECT_EQ(text(r.structured, "hint"), "/bin/ponder --home /h start");
  EXPECT_TRUE(daemon_.requests().empty());
}

}  // namespace
}  // namespace ponder::mcp
