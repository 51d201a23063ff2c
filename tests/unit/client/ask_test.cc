#include <chrono>
#include <csignal>

#include "tests/unit/client/cli_fixture.h"

namespace ponder::client_test {
namespace {
using testing::HasSubstr;
using testing::Not;

class AskTest : public CliTest {
 protected:
  AskTest() { on("POST /v1/jobs", 201, envelope(kJob, "queued")); }
  std::string events() const { return "GET " + job_path(kJob, "/events"); }
  std::string result() const { return "GET " + job_path(kJob, "/result"); }
  /// A whole stream that thinks, answers in the given pieces and ends in `state`.
  void streams(const std::vector<std::string>& pieces, const json::object& end) {
    on(events(), [=](const SeenRequest&, Peer& peer) {
      int id = 0;
      peer.begin_events();
      peer.event(std::to_string(++id), "state", json::object{{"state", "running"}});
      peer.event(std::to_string(++id), "reasoning", json::object{{"text", "hidden thoughts"}});
      for (const std::string& piece : pieces)
        peer.event(std::to_string(++id), "answer", json::object{{"text", piece}});
      peer.event(std::to_string(++id), "end", end);
      peer.end_events();
    });
    std::string whole;
    for (const std::string& piece : pieces)
      whole += piece;
    on(result(), 200, json::object{{"text", whole}});
  }
};

TEST_F(AskTest, StreamsTheAnswerAndNothingElseToStdout) {
  streams({"for", "ty-", "two ü"}, envelope(kJob, "completed"));
  const Ended ended = run_ponder({"ask", "what", "is", "it?", "--effort", "low"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "forty-two ü\n");
  EXPECT_EQ(ended.err, "");
  EXPECT_EQ(posted().at("kind"), "ask");
  EXPECT_EQ(posted().at("task"), "what is it?");
  EXPECT_EQ(posted().at("effort"), "low");
  EXPECT_EQ(server_->count(result()), 1) << "reading to the end tells the daemon that it was read";
}

TEST_F(AskTest, JsonIsOneDocumentWithTheWholeAnswer) {
  const std::string longer(20'000, 'x');
  json::object end = envelope(kJob, "completed");
  end["answer"] = nullptr;
  end["truncated"] = true;
  streams({longer}, end);
  const Ended ended = run_ponder({"ask", "x", "--json"});
  EXPECT_EQ(ended.exit_code, 0);
  const json::object document = ended.document();
  EXPECT_EQ(document.at("schema_version"), 1);
  EXPECT_EQ(document.at("job_id"), kJob);
  EXPECT_EQ(document.at("answer"), json::value(longer));
  EXPECT_EQ(document.at("truncated"), false);
}

TEST_F(AskTest, EachEndingHasItsExitCodeAndSaysWhereTheRestIs) {
  const std::map<std::string, int> codes{
      {"failed", 1}, {"incomplete", 5}, {"cancelled", 6}, {"interrupted", 6}};
  for (const auto& [state, code] : codes) {
    json::object end = envelope(kJob, state);
    end["error"] = json::object{{"message", "the reason"}, {"hint", "the fix"}};
    end["next"] = json::object{{"shell", "ponder result --part partial X"}};
    streams({"part"}, end);
    const Ended ended = run_ponder({"ask", "x"});
    EXPECT_EQ(ended.exit_code, code) << state;
    EXPECT_EQ(ended.out, "part\n");
    EXPECT_THAT(ended.err, HasSubstr(std::string("job ") + kJob + " is " + state)) << state;
    for (const char* part : {"the reason", "the fix", "ponder result --part partial X"})
      EXPECT_THAT(ended.err, HasSubstr(part)) << state;
  }
}

TEST_F(AskTest, CtrlCDetachesMarksTheJobAsToldAndCancelsNothing) {
  on(events(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("1", "answer", json::object{{"text", "so far"}});
    peer.wait_until_gone();
  });
  on("GET " + job_path(kJob), 200, envelope(kJob, "running"));
  Running running(ponder({"ask", "x"}));
  ASSERT_TRUE(server_->wait_for(events()));
  running.signal(SIGINT);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.exit_code, 130);
  EXPECT_THAT(ended.err, HasSubstr(kJob));
  EXPECT_THAT(ended.out, Not(HasSubstr(kJob)));
  EXPECT_TRUE(server_->wait_for_target(job_path(kJob, "?told=true")));
  EXPECT_EQ(server_->count("POST " + job_path(kJob, "/cancel")), 0);
}

TEST_F(AskTest, ATerminationAndAClosedTerminalDetachToo) {
  on(events(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.wait_until_gone();
  });
  on("GET " + job_path(kJob), 200, envelope(kJob, "running"));
  int runs = 0;
  for (const int number : {SIGTERM, SIGHUP}) {
    Running running(ponder({"ask", "x"}));
    ASSERT_TRUE(server_->wait_for(events(), ++runs));
    running.signal(number);
    const Ended ended = running.wait();
    EXPECT_EQ(ended.exit_code, 128 + number);
    EXPECT_THAT(ended.err, HasSubstr(std::string("job ") + kJob + " goes on"));
  }
}

TEST_F(AskTest, AClosedStdoutIsNotTakenForSuccess) {
  streams({"answer"}, envelope(kJob, "completed"));
  RunOptions options = ponder({"ask", "x"});
  options.arguments.insert(options.arguments.begin(),
                           {"-c", "exec \"$0\" \"$@\" >&-", options.program});
  options.program = "/bin/sh";
  EXPECT_EQ(run(options).exit_code, 74);
}

TEST_F(AskTest, ASpentWaitIsNotHeldUpByADaemonThatHangs) {
  on(events(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.wait_until_gone();
  });
  on("GET " + job_path(kJob), [](const SeenRequest&, Peer& peer) { peer.wait_until_gone(); });
  const auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(run_ponder({"ask", "x", "--wait-s", "0.2"}).exit_code, 124);
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(10));  // not for ever
}

TEST_F(AskTest, ASpentWaitLeavesTheJobAndSays124) {
  on(events(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.wait_until_gone();
  });
  on("GET " + job_path(kJob), 200, envelope(kJob, "running"));
  const Ended ended = run_ponder({"ask", "x", "--wait-s", "0.1", "--json"});
  EXPECT_EQ(ended.exit_code, 124);
  EXPECT_EQ(ended.document().at("error").at("job_id"), kJob);
  EXPECT_TRUE(server_->wait_for_target(job_path(kJob, "?told=true")));
}

TEST_F(AskTest, ABrokenStreamGoesOnAfterTheLastEventSeen) {
  on(events(), [](const SeenRequest& request, Peer& peer) {
    const bool first = request.target.ends_with("after=0");
    EXPECT_TRUE(first || request.target.ends_with("after=7")) << request.target;
    peer.begin_events();
    if (first) {
      peer.event("7", "answer", json::object{{"text", "one "}});
      return;  // breaks off
    }
    peer.event("9", "answer", json::object{{"text", "two"}});
    peer.event("10", "end", envelope(kJob, "completed"));
    peer.end_events();
  });
  on(result(), 200, json::object{{"text", "one two"}});
  const Ended ended = run_ponder({"ask", "x"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, "one two\n");
}

TEST_F(AskTest, AnErrorInTheStreamIsTheCommandsError) {
  on(events(), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("", "error", error_body("job_unknown", "it was removed"));
    peer.end_events();
  });
  const Ended ended = run_ponder({"ask", "x"});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_THAT(ended.err, HasSubstr("it was removed"));
  EXPECT_THAT(ended.err, HasSubstr(std::string("ponder wait ") + kJob));
  EXPECT_TRUE(server_->wait_for_target(job_path(kJob, "?told=true"))) << "its id was said";
}

TEST_F(AskTest, RefusalsBeforeTheJobExists) {
  const std::map<std::string, int> codes{{"context_length_exceeded", 2},
                                         {"queue_full", 75},
                                         {"loading", 75},
                                         {"storage", 74},
                                         {"unauthorized", 2}};
  for (const auto& [code, exit_code] : codes) {
    on("POST /v1/jobs", 400, error_body(code, "the daemon says no"));
    const Ended ended = run_ponder({"ask", "x", "--json"});
    EXPECT_EQ(ended.exit_code, exit_code) << code;
    EXPECT_EQ(ended.document().at("error").at("code"), json::value(code));
    const std::string hint(ended.document().at("error").at("hint").as_string());
    if (code == "unauthorized")
      EXPECT_THAT(hint, HasSubstr("PONDER_KEY_FILE")) << "what a caller of ours can do";
    else
      EXPECT_EQ(hint, "mend it");
    EXPECT_EQ(ended.document().at("schema_version"), 1);
  }
}

TEST_F(AskTest, OnATerminalControlCharactersAreEscapedAndThinkingIsCounted) {
  streams({"a\x1b[31mb\xE2\x80\xAE"}, envelope(kJob, "completed"));
  RunOptions options = ponder({"ask", "x"});
  options.terminal = true;
  const Ended terminal = run(options);
  EXPECT_THAT(terminal.out, HasSubstr("a\\u001b[31mb\\u202e"));
  EXPECT_THAT(terminal.out, HasSubstr("thinking: 15 characters"));
  const Ended piped = run_ponder({"ask", "x"});
  EXPECT_EQ(piped.out, "a\x1b[31mb\xE2\x80\xAE\n");
}

TEST_F(AskTest, AFullDiskUnderStdoutIsNotTakenForSuccess) {
  streams({"answer"}, envelope(kJob, "completed"));
  RunOptions options = ponder({"ask", "x"});
  options.arguments.insert(options.arguments.begin(),
                           {"-c", "exec \"$0\" \"$@\" > /dev/full", options.program});
  options.program = "/bin/sh";
  const Ended ended = run(options);
  EXPECT_EQ(ended.exit_code, 74);
  EXPECT_THAT(ended.err, HasSubstr("could not be written"));
}

}  // namespace
}  // namespace ponder::client_test
