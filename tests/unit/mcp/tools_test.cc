// The six tools against a fake daemon and a fake clock.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "engine/base/ids.h"
#include "engine/base/utf8.h"
#include "mcp/tools/registry.h"
#include "mcp/tools/report.h"
#include "tests/unit/mcp/fake_daemon.h"

namespace ponder::mcp {
namespace {
namespace fs = std::filesystem;
using ::testing::EndsWith;
using testing::envelope;
using testing::FakeJob;
using ::testing::HasSubstr;
using testing::id_of;
using ::testing::Not;
using ::testing::StartsWith;

class ToolsTest : public ::testing::Test {
 protected:
  fs::path dir_ = fs::temp_directory_path() / ("ponder-tools-" + random_hex(6));
  testing::FakeClock clock_;
  testing::FakeDaemon daemon_{clock_};
  Workspace workspace_{dir_, {}};
  ToolContext context_{
      daemon_, workspace_, clock_, "/bin/ponder --home /h", "/bin/ponderd --home /h", "1.2.3"};
  ToolRegistry tools_{context_};
  testing::FakeProgress progress_;
  client::Interrupt interrupt_;
  std::string client_ = "some-client";

  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  ToolResult call(std::string_view name, json::object arguments) {
    ToolCall c{std::move(arguments), client_, progress_, interrupt_};
    ToolResult result = tools_.call(name, c);
    if (result.is_error) {
      EXPECT_LE(count_code_points(result.text), 8'000);
      EXPECT_TRUE(result.structured.empty());
    } else {
      EXPECT_FALSE(result.structured.empty());
      // The last line is the status line, the one before it "---".
      const std::size_t last = result.text.rfind('\n');
      EXPECT_NE(last, std::string::npos);
      EXPECT_THAT(result.text.substr(0, last), EndsWith("---")) << result.text;
    }
    return result;
  }
  ToolResult failing(std::string_view name, json::object arguments) {
    ToolResult result = call(name, std::move(arguments));
    EXPECT_TRUE(result.is_error) << name << ": " << result.text;
    return result;
  }
  ToolResult good(std::string_view name, json::object arguments) {
    ToolResult result = call(name, std::move(arguments));
    EXPECT_FALSE(result.is_error) << name << ": " << result.text;
    return result;
  }
  static FakeJob job(int n, std::string_view state, std::string answer = "") {
    return {envelope(id_of(n), state), std::move(answer), "thoughts"};
  }
  static FakeJob cut(int n, std::string_view state, std::string_view reason, std::string partial) {
    FakeJob j = job(n, state, std::move(partial));
    j.envelope["reason"] = reason;
    return j;
  }
  static std::string text(const json::object& o, std::string_view key) { return text_of(o, key); }
};

// ---- the list and the arguments

TEST_F(ToolsTest, TheListIsFixedSmallAndSaysWhatIsChecked) {
  const json::array& list = tools_.list();
  ASSERT_EQ(list.size(), 6u);
  const char* order[] = {"ask", "submit", "status", "result", "cancel", "health"};
  for (std::size_t i = 0; i < 6; ++i)
    EXPECT_EQ(list.at(i).at("name").as_string(), order[i]);
  EXPECT_LT(to_json(list).size() + 200, 12'288u);
  EXPECT_LE(instructions().size(), 2'048u);
  EXPECT_TRUE(is_valid_utf8(instructions()));
  for (const Tool* tool : all_tools()) {
    const json::object definition = parse_json_object(tool->definition).value();
    EXPECT_LE(definition.at("description").as_string().size(), 2'048u) << tool->name;
    const json::object& schema = definition.at("inputSchema").as_object();
    EXPECT_FALSE(schema.at("additionalProperties").as_bool());
    const json::object& properties = schema.at("properties").as_object();
    std::set<std::string> required;
    if (schema.contains("required"))
      for (const json::value& name : schema.at("required").as_array())
        required.insert(std::string(name.as_string()));
    EXPECT_EQ(properties.size(), tool->arguments.size()) << tool->name;
    for (const Argument& a : tool->arguments) {
      EXPECT_TRUE(properties.contains(a.name)) << tool->name << "." << a.name;
      EXPECT_EQ(required.count(std::string(a.name)) != 0, a.required)
          << tool->name << "." << a.name;
    }
  }
}

TEST_F(ToolsTest, TheToolsForTheMainPathAreNeverHidden) {
  for (const json::value& row : tools_.list()) {
    const std::string name(row.at("name").as_string());
    const bool always = row.as_object().contains("_meta") &&
                        row.at("_meta").as_object().contains("anthropic/alwaysLoad");
    EXPECT_EQ(always, name != "cancel" && name != "health") << name;
    EXPECT_FALSE(row.at("annotations").at("openWorldHint").as_bool());
  }
}

TEST_F(ToolsTest, BadArgumentsAreToolErrorsThatSayWhatIsRight) {
  const std::string id = id_of(1);
  const struct {
    const char* tool;
    json::object arguments;
    const char* says;
  } cases[] = {
      {"ask", {}, "\"question\" is missing"},
      {"ask", {{"question", ""}}, "not empty"},
      {"ask", {{"question", 5}}, "must be a string"},
      {"ask", {{"question", nullptr}}, "\"question\" is missing"},
      {"ask", {{"question", "x"}, {"effort", "extreme"}}, "\"xhigh\""},
      {"ask", {{"question", "x"}, {"effort", -1}}, "thinking tokens"},
      {"ask", {{"question", "x"}, {"effort", 1.5}}, "thinking tokens"},
      {"ask", {{"question", "x"}, {"wait_s", -1}}, "at least 0"},
      {"ask", {{"question", "x"}, {"wait_s", "10"}}, "must be a number"},
      {"ask", {{"question", "x"}, {"files", "a.txt"}}, "array"},
      {"ask", {{"question", "x"}, {"files", json::array{1}}}, "array"},
      {"ask",
       {{"prompt", "x"}},
       "Its arguments are: question (required), context, files, effort, wait_s"},
      {"submit", {{"task", "x"}, {"label", std::string(201, 'l')}}, "0 to 200 characters"},
      {"submit", {{"task", "x"}, {"max_answer_tokens", 0}}, "from 1 to"},
      {"submit", {{"task", "x"}, {"max_answer_tokens", 1.5}}, "whole number"},
      {"submit", {{"task", "x"}, {"deadline_s", 0}}, "from 0.001"},
      {"submit", {{"task", "x"}, {"schema", "{}"}}, "an object"},
      {"submit", {{"task", "x"}, {"force_new", 1}}, "true or false"},
      {"submit", {{"task", "x"}, {"mode", "resume"}}, "mode follow_up"},
      {"submit", {{"task", "x"}, {"mode", "answer_now"}}, "larger max_reasoning_tokens"},
      {"submit", {{"task", "x"}, {"on_limit", "answer"}}, "larger max_reasoning_tokens"},
      {"submit", {{"task", "x"}, {"continue_from", "x"}}, "no job \"x\""},
      {"status", {{"job_id", "../../etc"}}, "26 characters"},
      {"status", {{"job_id", id}, {"job_ids", json::array{id}}}, "not both"},
      {"status", {{"job_ids", json::array{}}}, "1 to 20"},
      {"status", {{"job_id", id}}, "no job"},
      {"status", {{"job_ids", json::array{id}}}, "no job"},
      {"result", {{"job_id", id}, {"part", "all"}}, "\"reasoning\""},
      {"result", {{"job_id", id}, {"offset", -1}}, "at least 0"},
      {"result", {{"job_id", id}, {"limit", 0}}, "at least 1"},
      {"result", {{"job_id", id}}, "no job"},
      {"cancel", {{"job_id", id}}, "no job"},
      {"cancel", {{"job_id", "ABC"}}, "26 characters"},
      {"health", {{"probe", "yes"}}, "true or false"},
  };
  for (const auto& c : cases) {
    const ToolResult r = failing(c.tool, c.arguments);
    EXPECT_THAT(r.text, HasSubstr(c.says)) << c.tool << to_json(c.arguments);
  }
}

TEST_F(ToolsTest, AllComplaintsComeAtOnce) {
  const ToolResult r = failing("ask", {{"wait_s", -1}, {"modell", "x"}});
  EXPECT_THAT(r.text, HasSubstr("wait_s"));
  EXPECT_THAT(r.text, HasSubstr("modell"));
  EXPECT_THAT(r.text, HasSubstr("\"question\" is missing"));
}

// ---- ask

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
    EXPECT_THAT(daemon_.last("GET", "/v1/jobs/").target, HasSubstr("?wait_s="))
        << "the daemon must learn that the id was told";
  }
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
  EXPECT_THAT(failing("ask", {{"question", "q"}}).text, HasSubstr("stopped by its owner"));
  daemon_.failures = {{ErrorCode::internal, std::string(50'000, 'x')}};
  failing("ask", {{"question", "q"}});
}

TEST_F(ToolsTest, AWaitOutlivesARestartOfTheDaemonButNotAForeverLostOne) {
  daemon_.submitted = job(1, "running");
  daemon_.put(job(1, "running"));
  daemon_.moves = {job(1, "completed", "late")};
  daemon_.failures = {};
  // The POST succeeds, two waits are lost, the third is answered.
  class Restarting final : public Daemon {
   public:
    explicit Restarting(testing::FakeDaemon& inner) : inner_(inner) {}
    Result<client::Response> call(std::string_view method, const std::string& target,
                                  const json::value* body, int timeout_ms,
                                  client::Interrupt* interrupt) override {
      if (target.find("wait_s") != std::string::npos && lost-- > 0)
        return fail(ErrorCode::unreachable, "the connection broke");
      return inner_.call(method, target, body, timeout_ms, interrupt);
    }
    Result<json::object> health(int t, client::Interrupt* i) override {
      return inner_.health(t, i);
    }
    int lost = 2;

   private:
    testing::FakeDaemon& inner_;
  } restarting(daemon_);
  const ToolContext context{restarting, workspace_, clock_, "ponder", "ponderd", "1"};
  const ToolRegistry tools(context);
  ToolCall c{{{"question", "q"}}, "", progress_, interrupt_};
  EXPECT_THAT(tools.call("ask", c).text, StartsWith("late"));
  restarting.lost = 1000;
  ToolCall again{{{"question", "q"}}, "", progress_, interrupt_};
  const ToolResult r = tools.call("ask", again);
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

// ---- submit

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

// ---- status

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

TEST_F(ToolsTest, StatusOfAKnownJobIsNeverAnError) {
  for (const char* state : {"queued", "running", "completed", "incomplete", "failed", "cancelled",
                            "interrupted", "expired"}) {
    daemon_.put(job(1, state));
    EXPECT_EQ(text(good("status", {{"job_id", id_of(1)}}).structured, "state"), state);
    EXPECT_EQ(text(good("status", {{"job_id", id_of(1)}, {"wait_s", 5}}).structured, "state"),
              state);
  }
}

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
  daemon_.put(job(2, "running"));
  const ToolResult some = good("status", {});
  EXPECT_EQ(some.structured.at("jobs").at(0).at("job_id").as_string(), id_of(2));
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs?").target, HasSubstr("&workspace=%2F"));
  good("status", {{"all_workspaces", true}});
  EXPECT_THAT(daemon_.last("GET", "/v1/jobs?").target, Not(HasSubstr("workspace")));
}

// ---- result

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

// ---- cancel and health

TEST_F(ToolsTest, CancelGivesTheFinalEnvelopeAndIsIdempotent) {
  daemon_.put(job(1, "running"));
  for (int i = 0; i < 2; ++i) {
    const ToolResult r = good("cancel", {{"job_id", id_of(1)}});
    EXPECT_EQ(text(r.structured, "state"), "cancelled");
    EXPECT_THAT(r.text, HasSubstr(R"("part":"partial")"));
  }
}

json::object healthy() {
  return {
      {"state", "busy"},
      {"reason", nullptr},
      {"degraded", json::array{"slow"}},
      {"model",
       json::object{{"id", "pebble"}, {"class", "demo"}, {"path", "/m.gguf"}, {"n_ctx", 32768}}},
      {"engine", json::object{{"pid", 1}, {"device", "cpu"}, {"restarts", 0}}},
      {"queue", json::object{{"running", 1}, {"ask", 0}, {"batch", 2}, {"limit", 1000}}},
      {"version", "0.1.0"},
      {"build", "abc"}};
}

TEST_F(ToolsTest, HealthSaysAllOfItAndHowToInstallARealModel) {
  daemon_.health_document = healthy();
  const ToolResult r = good("health", {});
  for (const char* part :
       {"State: busy", "slow", "pebble", "32768", "1 running", "2 batch", "0.1.0", "abc", "1.2.3",
        "not for real work", "/bin/ponderd --home /h --detach --model"})
    EXPECT_THAT(r.text, HasSubstr(part));
  EXPECT_EQ(text(r.structured, "state"), "busy");
  EXPECT_TRUE(daemon_.requests().empty());
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
  EXPECT_TRUE(daemon_.requests().empty());
}

}  // namespace
}  // namespace ponder::mcp
