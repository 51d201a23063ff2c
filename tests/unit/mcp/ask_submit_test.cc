// ask and submit.
#include <fstream>
#include <thread>

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

// T33, anthropics/claude-code#79944, kimi-code#2554: some clients show the text alone, some the
// structure alone.
TEST_F(ToolsTest, AskGivesTheAnswerInBothHalves) {
  daemon_.submitted = job(1, "queued");
  daemon_.moves = {job(1, "running"), job(1, "completed", "The answer is 42.")};
  std::ofstream(dir_ / "notes.txt") << "facts";
  const ToolResult r = good("ask", {{"question", "What?"},
                                    {"context", "c"},
                                    {"effort", 500},
                                    {"files", json::array{"notes.txt"}}});
  EXPECT_EQ(r.text,
            fmt::format("The answer is 42.\n---\njob {} completed; effort medium; tokens 12 "
                        "prompt, 30 reasoning, 7 answer; 4.2 s",
                        id_of(1)));
  EXPECT_EQ(text(r.structured, "answer"), "The answer is 42.");
  EXPECT_EQ(whole_of(r.structured, "total_chars"), 17);
  EXPECT_FALSE(flag_of(r.structured, "truncated"));
  EXPECT_TRUE(r.structured.at("next_offset").is_null());
  const json::object body = daemon_.last("POST", "/v1/jobs").body.as_object();
  EXPECT_EQ(body,
            (json::object{
                {"kind", "ask"},
                {"task", "What?"},
                {"workspace", dir_.string()},
                {"context", "c"},
                {"effort", 500},
                {"files", json::array{json::object{{"name", "notes.txt"}, {"text", "facts"}}}}}));
}

TEST_F(ToolsTest, AskKeepsEveryFieldOfTheEnvelope) {
  daemon_.submitted = job(1, "completed", "x");
  const ToolResult r = good("ask", {{"question", "q"}});
  for (const auto& [key, value] : envelope(id_of(1), "completed"))
    EXPECT_TRUE(r.structured.contains(key)) << key;
}

TEST_F(ToolsTest, AskThatTakesTooLongNamesTheJobAndIsNoError) {
  daemon_.submitted = job(1, "queued");
  daemon_.put(job(1, "running"));
  const std::int64_t began = clock_.steady_ms();
  const ToolResult r = good("ask", {{"question", "q"}});
  const double took_s = static_cast<double>(clock_.steady_ms() - began) / 1000;
  EXPECT_GE(took_s, 44);
  EXPECT_LE(took_s, 45);
  EXPECT_THAT(r.text, HasSubstr(fmt::format(R"(Next call: status {{"job_id":"{}","wait_s":50}})",
                                            id_of(1))));
  EXPECT_THAT(r.text, HasSubstr("/bin/ponder --home /h wait " + id_of(1)));
  EXPECT_EQ(text(r.structured, "job_id"), id_of(1));
  EXPECT_EQ(r.structured.at("next").at("shell").as_string(),
            "/bin/ponder --home /h wait " + id_of(1));
  EXPECT_EQ(r.structured.at("next").at("mcp").at("tool").as_string(), "status");
}

// T1, anthropics/claude-code#63379, python-sdk#212: the client gave up at 60 s and the answer was
// dropped.
TEST_F(ToolsTest, AskWaitsAsLongAsAskedAndNoLongerThanTheBound) {
  daemon_.submitted = job(1, "running");
  for (const auto& [asked, least, most] :
       {std::tuple{0.0, 0.0, 0.1}, {2.0, 1.5, 2.0}, {9999.0, 44.0, 45.0}}) {
    const std::int64_t began = clock_.steady_ms();
    const ToolResult r = good("ask", {{"question", "q"}, {"wait_s", asked}});
    const double took_s = static_cast<double>(clock_.steady_ms() - began) / 1000;
    EXPECT_GE(took_s, least);
    EXPECT_LE(took_s, most);
    EXPECT_EQ(text(r.structured, "note").find("lowered from 9999 to 45") != std::string::npos,
              asked > 45);
    EXPECT_EQ(r.text.find("lowered from 9999 to 45") != std::string::npos, asked > 45);
    EXPECT_THAT(daemon_.last("GET", "/v1/jobs/").target, EndsWith("?told=true"))
        << "the daemon must learn that the id was told";
  }
}

// A daemon that dies between the last change and the end of the wait would end an untold ask.
TEST_F(ToolsTest, AnAskIsToldAlsoWhereAChangeEndedTheLastWait) {
  daemon_.submitted = job(1, "queued");
  daemon_.put(job(1, "queued"));
  daemon_.moves = {job(1, "running")};  // takes 100 ms, more than is left of the wait
  const ToolResult r = good("ask", {{"question", "q"}, {"wait_s", 0.25}});
  EXPECT_EQ(text(r.structured, "state"), "running");
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs/").target, EndsWith("?told=true"));
}

TEST_F(ToolsTest, AnAskThatEndsWhileItIsToldGivesItsAnswer) {
  daemon_.submitted = job(1, "running");
  daemon_.after_look = [this] { daemon_.put(job(1, "completed", "just now")); };
  EXPECT_THAT(good("ask", {{"question", "q"}, {"wait_s", 0.25}}).text, StartsWith("just now"));
}

TEST_F(ToolsTest, AskThatDoesNotCompleteIsAnErrorWithTheNextCall) {
  const struct {
    const char* state;
    const char* reason;
    const char* advice;
  } cases[] = {
      {"incomplete", "output_limit", "max_answer_tokens"},
      {"incomplete", "reasoning_exhausted", "max_reasoning_tokens"},
      {"incomplete", "stream_lost", "submit again"},
      {"incomplete", "deadline", "deadline_s"},
      {"incomplete", "repetition", "reword"},
      {"incomplete", "schema_invalid", "schema"},
      {"incomplete", "stalled", "submit again"},
      {"failed", "engine_error", "health"},
      {"failed", "out_of_memory", "smaller"},
      {"failed", "storage", "disk"},
      {"failed", "bad_request", "Correct"},
      {"failed", "model_missing", "health"},
      {"failed", "poison", "three times"},
      {"cancelled", "", "partial"},
      {"interrupted", "", "partial"},
  };
  for (const auto& c : cases) {
    daemon_.submitted = cut(1, c.state, c.reason, std::string(1234, 'p'));
    daemon_.submitted.envelope["error"] =
        json::object{{"code", "x"}, {"message", "It broke"}, {"hint", "do this"}};
    const ToolResult r = failing("ask", {{"question", "q"}});
    for (const std::string& part :
         {id_of(1), std::string(c.state), std::string(c.reason), std::string(c.advice),
          std::string("1234 characters"), std::string("90 characters"), std::string("It broke."),
          std::string("do this."),
          fmt::format(R"(result {{"job_id":"{}","part":"partial"}})", id_of(1))})
      EXPECT_THAT(r.text, HasSubstr(part)) << c.reason;
    EXPECT_THAT(r.text, Not(HasSubstr("pppp"))) << "a cut text must not look like an answer";
  }
}

TEST_F(ToolsTest, ALongAnswerIsPagedByTheClientsMeasure) {
  std::string answer;
  for (int i = 0; i < 14'000; ++i)
    answer += i % 10 == 9 ? "\xC3\xA9" : "x";
  daemon_.submitted = job(1, "completed", answer);
  for (const auto& [client, page] :
       {std::pair<const char*, int>{"some-client", 3000}, {"claude-code", 12000}}) {
    client_ = client;
    const ToolResult r = good("ask", {{"question", "q"}});
    const int pages = (14'000 + page - 1) / page;
    EXPECT_THAT(r.text,
                StartsWith(fmt::format("[page 1 of {}: characters 0 to {} of 14000", pages, page)));
    EXPECT_EQ(count_code_points(text(r.structured, "answer")), page);
    EXPECT_TRUE(flag_of(r.structured, "truncated"));
    EXPECT_EQ(whole_of(r.structured, "next_offset"), page);
    EXPECT_EQ(whole_of(r.structured, "total_chars"), 14'000);
    EXPECT_EQ(r.structured.at("next").at("mcp").at("arguments").at("offset").as_int64(), page);
    EXPECT_THAT(r.text, HasSubstr(text(r.structured, "answer")));
  }
}

TEST_F(ToolsTest, TheDemoModelIsNamedInEveryStatusLine) {
  daemon_.submitted = job(1, "completed", "x");
  daemon_.submitted.envelope["model_class"] = "demo";
  EXPECT_THAT(good("ask", {{"question", "q"}}).text, EndsWith("demo model: not for real work"));
  EXPECT_THAT(good("status", {}).text, EndsWith("demo model: not for real work"));
  EXPECT_THAT(instructions(), HasSubstr("demo"));
  EXPECT_THAT(instructions(), HasSubstr("--model"));
}

TEST_F(ToolsTest, AForcedAnswerAndANoteAreSaid) {
  daemon_.submitted = job(1, "completed", "x");
  daemon_.submitted.envelope["forced_answer"] = true;
  daemon_.submitted.envelope["note"] = "an identical live job exists";
  const ToolResult r = good("ask", {{"question", "q"}});
  EXPECT_THAT(r.text, HasSubstr("forced answer"));
  EXPECT_THAT(r.text, EndsWith("note: an identical live job exists"));
  EXPECT_EQ(text(r.structured, "note"), "an identical live job exists");
}

TEST_F(ToolsTest, AnAnswerThatLooksLikeProtocolStaysData) {
  const std::string answer = "{\"jsonrpc\":\"2.0\"}\n---\njob x completed\n\x01\xE2\x80\xA8";
  daemon_.submitted = job(1, "completed", answer);
  const ToolResult r = good("ask", {{"question", "q"}});
  EXPECT_EQ(text(r.structured, "answer"), answer);
  EXPECT_THAT(r.text, StartsWith(answer));
}

TEST_F(ToolsTest, RefusedRequestsSayWhyAndWhatMendsIt) {
  Error error{ErrorCode::context_length_exceeded, "the prompt is too long", "shorten it"};
  error.details = {{"n_prompt_tokens", 5000}, {"n_reserved", 100}, {"n_ctx", 4096}};
  daemon_.failures = {error};
  ToolResult r = failing("ask", {{"question", "q"}});
  for (const char* part : {"too long", "5000", "4096", "shorten it"})
    EXPECT_THAT(r.text, HasSubstr(part));
  daemon_.failures = {{ErrorCode::queue_full, "the queue is full"}};
  EXPECT_THAT(failing("submit", {{"task", "q"}}).text, HasSubstr("try again later"));
  daemon_.failures = {{ErrorCode::idempotency_mismatch, "another body"}};
  EXPECT_THAT(failing("submit", {{"task", "q"}}).text, HasSubstr("idempotency_key"));
  daemon_.failures = {
      {ErrorCode::unreachable, "stopped by its owner at T; `ponder start`", "ponder start"}};
  r = failing("ask", {{"question", "q"}});
  EXPECT_THAT(r.text, HasSubstr("stopped by its owner"));
  EXPECT_THAT(r.text, HasSubstr("To mend it: /bin/ponder --home /h start."))
      << "a command that an agent can run as it stands";
  daemon_.failures = {{ErrorCode::job_unknown, "there is no such job", "list them: ponder ps -a"}};
  r = failing("submit", {{"task", "q"}, {"continue_from", id_of(9)}});
  for (const std::string& part :
       {"Job " + id_of(9), std::string("list them: /bin/ponder --home /h ps -a.")})
    EXPECT_THAT(r.text, HasSubstr(part));
  daemon_.failures = {{ErrorCode::internal, std::string(50'000, 'x')}};
  failing("ask", {{"question", "q"}});
}

TEST_F(ToolsTest, SubmitTellsAnEstimateHoweverShortAndThatThereIsNone) {
  daemon_.submitted = job(1, "queued");
  daemon_.submitted.envelope["eta_s"] = json::object{{"p50", 0.01}, {"p90", 7}};
  EXPECT_THAT(good("submit", {{"task", "t"}}).text,
              HasSubstr("Expected to end in less than 1 s (half of such jobs), 7 s (nine of ten)"));
  daemon_.submitted.envelope["eta_s"] = json::object{{"p50", nullptr}, {"p90", nullptr}};
  EXPECT_THAT(good("submit", {{"task", "t"}}).text, HasSubstr("no estimate"));
}

TEST_F(ToolsTest, AJobThatHasNotRunNamesTheModelThatWillRunIt) {
  daemon_.health_document["model"] = json::object{{"id", "pebble"}, {"class", "demo"}};
  daemon_.submitted = job(1, "queued");
  daemon_.submitted.envelope["model"] = nullptr;
  daemon_.submitted.envelope["model_class"] = nullptr;
  daemon_.put(daemon_.submitted);
  for (const ToolResult& r :
       {good("submit", {{"task", "t"}}), good("ask", {{"question", "q"}, {"wait_s", 0}}),
        good("status", {{"job_id", id_of(1)}})}) {
    EXPECT_EQ(text(r.structured, "model"), "pebble");
    EXPECT_EQ(text(r.structured, "model_class"), "demo");
    EXPECT_THAT(r.text, HasSubstr("demo model: not for real work"));
  }
  EXPECT_THAT(good("status", {}).text, HasSubstr("demo model: not for real work"));
}

TEST_F(ToolsTest, AWaitOutlivesARestartOfTheDaemonButNotAForeverLostOne) {
  daemon_.submitted = job(1, "running");
  daemon_.put(job(1, "running"));
  daemon_.moves = {job(1, "completed", "late")};
  daemon_.lost_waits = 2;
  EXPECT_THAT(good("ask", {{"question", "q"}}).text, StartsWith("late"));
  daemon_.put(job(1, "running"));
  daemon_.lost_waits = 1000;
  const ToolResult r = failing("ask", {{"question", "q"}});
  EXPECT_TRUE(r.is_error);
  EXPECT_THAT(r.text, HasSubstr(id_of(1)));
  EXPECT_THAT(r.text, HasSubstr("Next call: status"));
}

TEST_F(ToolsTest, ProgressTellsPhaseAndTokensWhileAskWaits) {
  daemon_.submitted = job(1, "running");
  daemon_.waits_hold = true;
  progress_.is_wanted = true;
  std::thread caller([&] { good("ask", {{"question", "q"}}); });
  progress_.wait_for_report();
  EXPECT_EQ(progress_.reports.front(), "thinking, 37 tokens");
  daemon_.put(job(1, "completed", "x"));
  daemon_.release();
  caller.join();
}

TEST_F(ToolsTest, GivingUpAWaitEndsItAndCancelsNothing) {
  daemon_.submitted = job(1, "running");
  daemon_.waits_hold = true;
  std::thread caller([&] { call("ask", {{"question", "q"}}); });
  daemon_.wait_for_held(1);
  interrupt_.trigger();
  caller.join();
  for (const testing::Request& r : daemon_.requests())
    EXPECT_THAT(r.target, Not(HasSubstr("cancel")));
}

TEST_F(ToolsTest, SubmitGivesIdPositionTokensTimesAndTheWaitCommand) {
  daemon_.submitted = job(1, "queued");
  daemon_.submitted.envelope["position"] = 2;
  daemon_.submitted.envelope["label"] = "proof";
  daemon_.submitted.envelope["eta_s"] = json::object{{"p50", 60}, {"p90", 600}};
  const json::object arguments{{"task", "t"},
                               {"system", "s"},
                               {"effort", "low"},
                               {"max_reasoning_tokens", 10},
                               {"max_answer_tokens", 20},
                               {"deadline_s", 30.5},
                               {"on_limit", "stop"},
                               {"schema", json::object{{"type", "object"}}},
                               {"label", "proof"},
                               {"idempotency_key", "k"},
                               {"continue_from", id_of(9)},
                               {"mode", "follow_up"},
                               {"force_new", true},
                               {"pin", false}};
  const ToolResult r = good("submit", arguments);
  for (const std::string& part : {id_of(1), std::string("position 2"), std::string("12 tokens"),
                                  std::string("100 are reserved"), std::string("60 s"),
                                  std::string("10 min"), "/bin/ponder --home /h wait " + id_of(1),
                                  fmt::format(R"(status {{"job_id":"{}","wait_s":50}})", id_of(1))})
    EXPECT_THAT(r.text, HasSubstr(part));
  EXPECT_EQ(whole_of(r.structured, "position"), 2);
  json::object want = arguments;
  want["kind"] = "batch";
  want["workspace"] = dir_.string();
  EXPECT_EQ(daemon_.last("POST", "/v1/jobs").body.as_object(), want);
}

TEST_F(ToolsTest, SubmitRefusesFilesOutsideBeforeAskingTheDaemon) {
  EXPECT_THAT(failing("submit", {{"task", "t"}, {"files", json::array{"/etc/passwd"}}}).text,
              HasSubstr("/etc/passwd"));
  EXPECT_TRUE(daemon_.requests().empty());
}

}  // namespace
}  // namespace ponder::mcp
