// submit, wait, result, cancel, rm, pin, logs.
#include <sys/stat.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>

#include "tests/unit/client/cli_fixture.h"

namespace ponder::client_test {
namespace {
using testing::HasSubstr;

class SubmitTest : public CliTest {
 protected:
  SubmitTest() { on("POST /v1/jobs", 201, envelope(kJob, "queued")); }
};

TEST_F(SubmitTest, PrintsOnlyTheId) {
  const Ended ended = run_ponder({"submit", "do", "it"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, std::string(kJob) + "\n");
  EXPECT_EQ(ended.err, "");
}

TEST_F(SubmitTest, SendsEveryOptionUnderItsName) {
  write_file(home_ / "a.txt", "file text ü");
  write_file(home_ / "schema.json", R"({"type": "object"})");
  const Ended ended = run_ponder({"submit",
                                  "--file",
                                  home_ / "a.txt",
                                  "--context",
                                  "c",
                                  "--system",
                                  "s",
                                  "--effort",
                                  "4096",
                                  "--max-reasoning-tokens",
                                  "100",
                                  "--max-answer-tokens",
                                  "0",
                                  "--deadline-s",
                                  "1.5",
                                  "--on-limit",
                                  "answer",
                                  "--schema",
                                  home_ / "schema.json",
                                  "--label",
                                  "l",
                                  "--idempotency-key",
                                  "k",
                                  "--continue-from",
                                  kOtherJob,
                                  "--mode",
                                  "follow_up",
                                  "--force-new",
                                  "--pin",
                                  "--workspace",
                                  "/w/../w2",
                                  "--json",
                                  "--",
                                  "-task"});
  ASSERT_EQ(ended.exit_code, 0) << ended.err << ended.out;
  EXPECT_EQ(ended.document().at("job_id"), kJob);
  const json::object expected{
      {"kind", "batch"},
      {"task", "-task"},
      {"context", "c"},
      {"system", "s"},
      {"effort", 4096},
      {"max_reasoning_tokens", 100},
      {"max_answer_tokens", 0},
      {"deadline_s", 1.5},
      {"on_limit", "answer"},
      {"schema", {{"type", "object"}}},
      {"label", "l"},
      {"idempotency_key", "k"},
      {"continue_from", kOtherJob},
      {"mode", "follow_up"},
      {"force_new", true},
      {"pin", true},
      {"workspace", "/w2"},
      {"files", json::array{json::object{{"name", home_ / "a.txt"}, {"text", "file text ü"}}}}};
  EXPECT_EQ(posted(), expected) << to_json(posted());
}

TEST_F(SubmitTest, TheWorkspaceIsTheWorkingDirectory) {
  RunOptions options = ponder({"submit", "x"});
  options.directory = home_.path();
  ASSERT_EQ(run(options).exit_code, 0);
  EXPECT_EQ(posted().at("workspace"), json::value(home_.path()));
}

TEST_F(SubmitTest, TextComesFromStdinWithADashOrWithoutArguments) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"submit", "-"}, {"submit"}}) {
    SetUp();
    RunOptions options = ponder(arguments);
    options.input = "from stdin\n[[stub tokens=1]]\n";
    EXPECT_EQ(run(options).exit_code, 0);
    EXPECT_EQ(posted().at("task"), json::value(*options.input));
  }
}

TEST_F(SubmitTest, StdinIsLeftAloneWhenThereIsText) {
  RunOptions options = ponder({"submit", "words"});
  options.input = "ignored";
  EXPECT_EQ(run(options).exit_code, 0);
  EXPECT_EQ(posted().at("task"), "words");
}

TEST_F(SubmitTest, BadInputIsRefusedBeforeTheDaemonIsAsked) {
  write_file(home_ / "latin1", "\xe4");
  write_file(home_ / "wrong.json", "{");
  write_file(home_ / "large", std::string(17u << 20, 'x'));
  const std::vector<std::vector<std::string>> wrong{
      {"submit"},
      {"submit", "  \n"},
      {"submit", "\xff"},
      {"submit", "x", "--file", home_ / "absent"},
      {"submit", "x", "--file", home_.path()},
      {"submit", "x", "--file", home_ / "latin1"},
      {"submit", "x", "--file", home_ / "large"},
      {"submit", "x", "--schema", home_ / "wrong.json"},
      {"submit", "x", "--deadline-s", "-1"},
      {"submit", "x", "--max-answer-tokens", "-1"},
      {"submit", "x", "--max-answer-tokens", "many"},
      {"submit", "x", "--what"}};
  for (const auto& arguments : wrong) {
    const Ended ended = run_ponder(arguments);
    EXPECT_EQ(ended.exit_code, 2) << arguments.back();
    EXPECT_EQ(ended.out, "") << arguments.back();
    EXPECT_THAT(ended.err, HasSubstr("ponder: ")) << arguments.back();
  }
  EXPECT_TRUE(server_->seen().empty());
}

TEST_F(SubmitTest, WordsThatAreNoneNameOnlyWhatWorks) {
  EXPECT_THAT(run_ponder({"submit", "x", "--mode", "z"}).err,
              HasSubstr("--mode must be follow_up, resume or answer_now"));
  EXPECT_THAT(run_ponder({"submit", "x", "--on-limit", "z"}).err,
              HasSubstr("--on-limit must be stop or answer"));
  EXPECT_TRUE(server_->seen().empty());
}

TEST_F(SubmitTest, NotesAndErrorsNameOptionsAsTheyAreTyped) {
  json::object twin = envelope(kJob, "running");
  twin["note"] = "under way; force_new makes another";
  on("POST /v1/jobs", 200, twin);
  EXPECT_THAT(run_ponder({"submit", "x"}).err, HasSubstr("under way; --force-new makes another"));
  on("POST /v1/jobs", 409, error_body("idempotency_mismatch", "or use force_new"));
  EXPECT_THAT(run_ponder({"submit", "x"}).err, HasSubstr("or use --force-new"));
}

TEST_F(SubmitTest, ANoteGoesToStderr) {
  json::object twin = envelope(kJob, "running");
  twin["note"] = "the same job is in the queue already";
  on("POST /v1/jobs", 200, twin);
  const Ended ended = run_ponder({"submit", "x"});
  EXPECT_EQ(ended.out, std::string(kJob) + "\n");
  EXPECT_THAT(ended.err, HasSubstr("the same job is in the queue already"));
}

TEST_F(SubmitTest, AnEmptyOptionIsNoOptionThatWasLeftOut) {
  for (const char* option : {"--idempotency-key", "--continue-from", "--mode", "--effort", "--file",
                             "--on-limit", "--schema", "--label", "--workspace"}) {
    const Ended ended = run_ponder({"submit", "x", option, ""});
    EXPECT_EQ(ended.exit_code, 2) << option;
    EXPECT_THAT(ended.err, HasSubstr(std::string(option) + " must not be empty"));
  }
  EXPECT_EQ(run_ponder({"continue", ""}).exit_code, 4);
  EXPECT_THAT(run_ponder({"continue", "", "x"}).err, HasSubstr("no such job: \"\""));
  EXPECT_TRUE(server_->seen().empty());
}

/// Waits until the program sleeps in a system call: twice, since it may be a short one.
bool sleeps(pid_t pid) {
  for (int looks = 0, asleep = 0; looks < 500; ++looks) {
    const std::string stat = read_file("/proc/" + std::to_string(pid) + "/stat");
    const std::size_t name_end = stat.rfind(')');
    asleep = name_end != std::string::npos && stat.substr(name_end, 3) == ") S" ? asleep + 1 : 0;
    if (asleep == 3) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return false;
}

TEST_F(SubmitTest, CtrlCWhileItWaitsForAFifoIs130) {
  ASSERT_EQ(::mkfifo((home_ / "fifo").c_str(), 0600), 0);
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"submit", "-f", home_ / "fifo", "x"}, {"submit", "--schema", home_ / "fifo", "x"}}) {
    Running running(ponder(arguments));
    ASSERT_TRUE(sleeps(running.pid()));
    running.signal(SIGINT);
    const Ended ended = running.wait();
    EXPECT_EQ(ended.exit_code, 130) << arguments[1];
    EXPECT_EQ(ended.err, "ponder: interrupted\n") << arguments[1];
  }
}

TEST_F(SubmitTest, GoingOnInsideTheParentsTurnNeedsNoText) {
  RunOptions options = ponder({"submit", "--continue-from", kOtherJob, "--mode", "answer_now"});
  options.input = "";
  EXPECT_EQ(run(options).exit_code, 0);
  EXPECT_EQ(posted().at("mode"), "answer_now");
}

using WaitTest = CliTest;

TEST_F(WaitTest, PrintsEachJobAsItEndsAndExitsByTheWorst) {
  on("GET " + job_path(kJob), [](const SeenRequest& request, Peer& peer) {
    const bool waits = request.target.find("wait_s") != std::string::npos;
    peer.answer(200, envelope(kJob, waits ? "completed" : "running"));
  });
  on("GET " + job_path(kOtherJob), 200, envelope(kOtherJob, "incomplete"));
  const Ended ended = run_ponder({"wait", kJob, kOtherJob});
  EXPECT_EQ(ended.exit_code, 5);
  EXPECT_EQ(ended.out, std::string(kOtherJob) + " incomplete\n" + kJob + " completed\n");
}

TEST_F(WaitTest, AnyEndsWithTheFirst) {
  on("GET " + job_path(kJob), [](const SeenRequest& request, Peer& peer) {
    if (request.target.find("wait_s") == std::string::npos)
      return peer.answer(200, envelope(kJob, "queued"));
    peer.wait_until_gone();
  });
  on("GET " + job_path(kOtherJob), [](const SeenRequest& request, Peer& peer) {
    const bool waits = request.target.find("wait_s") != std::string::npos;
    peer.answer(200, envelope(kOtherJob, waits ? "failed" : "running"));
  });
  const Ended ended = run_ponder({"wait", "--any", kJob, kOtherJob, "--json"});
  EXPECT_EQ(ended.exit_code, 1);
  ASSERT_EQ(ended.document().at("jobs").as_array().size(), 1u);
  EXPECT_EQ(ended.document().at("jobs").at(0).at("job_id"), kOtherJob);
}

TEST_F(WaitTest, ASpentWaitIs124AndCtrlCIs130AndNeitherCancels) {
  on("GET " + job_path(kJob), [](const SeenRequest& request, Peer& peer) {
    if (request.target.find("wait_s") == std::string::npos)
      return peer.answer(200, envelope(kJob, "running"));
    peer.wait_until_gone();
  });
  EXPECT_EQ(run_ponder({"wait", kJob, "--wait-s", "0.1"}).exit_code, 124);
  EXPECT_TRUE(server_->wait_for_target(job_path(kJob, "?told=true")));
  const int waits = server_->count_of_target(job_path(kJob, "?wait_s=25.000"));
  Running running(ponder({"wait", kJob}));
  ASSERT_TRUE(server_->wait_for_target(job_path(kJob, "?wait_s=25.000"), waits + 1));
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().exit_code, 130);
  EXPECT_TRUE(server_->wait_for_target(job_path(kJob, "?told=true"), 2)) << "both said its id";
  EXPECT_EQ(server_->count("POST " + job_path(kJob, "/cancel")), 0);
}

// T8, teng-lin/notebooklm-py#2142: a wait whose default was shorter than every real run. A request
// waits 25 s at most, so 120 answers that say "still running" are 50 minutes.
TEST_F(WaitTest, WithoutABoundItWaitsForAnHourAsForASecond) {
  int waits = 0;
  on("GET " + job_path(kJob), [&](const SeenRequest& request, Peer& peer) {
    const bool is_wait = request.target.find("wait_s=25") != std::string::npos;
    peer.answer(200, envelope(kJob, is_wait && ++waits > 120 ? "completed" : "running"));
  });
  const Ended ended = run_ponder({"wait", kJob});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(ended.out, std::string(kJob) + " completed\n");
  EXPECT_EQ(waits, 121);
}

TEST_F(WaitTest, AnUnknownIdIs4BeforeAnythingIsWaitedFor) {
  on("GET " + job_path(kJob), 404, error_body("job_unknown", "no such job"));
  on("GET " + job_path(kOtherJob), 200, envelope(kOtherJob, "running"));
  const Ended ended = run_ponder({"wait", kOtherJob, kJob});
  EXPECT_EQ(ended.exit_code, 4);
  EXPECT_EQ(ended.out, "");
}

TEST_F(WaitTest, ADaemonThatGoesAwayDuringAWaitIsAskedAgain) {
  int waits = 0;
  on("GET " + job_path(kJob), [&](const SeenRequest& request, Peer& peer) {
    if (request.target.find("wait_s") == std::string::npos)
      return peer.answer(200, envelope(kJob, "running"));
    if (++waits > 8) peer.answer(200, envelope(kJob, "completed"));
  });  // the first waits are closed without an answer, as by a daemon that takes 2 s to restart
  const Ended ended = run_ponder({"wait", kJob});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
}

using ResultTest = CliTest;

TEST_F(ResultTest, PrintsTheTextAsItIsAndAsksForThePage) {
  on("GET " + job_path(kJob, "/result"), 200,
     json::object{{"text", "raw\x1b[0m, no newline"},
                  {"truncated", true},
                  {"next_offset", 9},
                  {"total_chars", 40}});
  const Ended ended =
      run_ponder({"result", kJob, "--part", "partial", "--offset", "2", "--limit", "7"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "raw\x1b[0m, no newline");
  EXPECT_THAT(ended.err, HasSubstr("--offset 9 of 40"));
  EXPECT_EQ(server_->seen().at(0).target, job_path(kJob, "/result?part=partial&offset=2&limit=7"));
}

TEST_F(ResultTest, WritesAFileWholeOrNotAtAll) {
  on("GET " + job_path(kJob, "/result"), 200, json::object{{"text", "new"}, {"part", "answer"}});
  write_file(home_ / "out.md", "old");
  const Ended ended = run_ponder({"result", kJob, "-o", home_ / "out.md", "--json"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(read_file(home_ / "out.md"), "new");
  EXPECT_EQ(ended.document().at("out_file"), json::value(home_ / "out.md"));
  EXPECT_FALSE(ended.document().contains("text"));
  const Ended refused = run_ponder({"result", kJob, "-o", home_ / "no/such/dir/x"});
  EXPECT_EQ(refused.exit_code, 74);
}

TEST_F(ResultTest, ADashIsStdout) {
  on("GET " + job_path(kJob, "/result"), 200, json::object{{"text", "new"}, {"part", "answer"}});
  RunOptions options = ponder({"result", kJob, "-o", "-"});
  options.directory = home_.path();
  const Ended ended = run(options);
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, "new");
  EXPECT_FALSE(std::filesystem::exists(home_ / "-"));
  EXPECT_EQ(run_ponder({"result", kJob, "-o", "-", "--json"}).document().at("text"), "new");
}

TEST_F(ResultTest, AnAnswerThatIsNotThereExitsByTheJobsState) {
  on("GET " + job_path(kJob, "/result"), 409, error_body("not_completed", "not completed"));
  const std::map<std::string, int> codes{{"queued", 3},     {"running", 3},   {"failed", 1},
                                         {"incomplete", 5}, {"cancelled", 6}, {"interrupted", 6}};
  for (const auto& [state, code] : codes) {
    on("GET " + job_path(kJob), 200, envelope(kJob, state));
    const Ended ended = run_ponder({"result", kJob});
    EXPECT_EQ(ended.exit_code, code) << state;
    EXPECT_EQ(ended.out, "");
  }
}

TEST_F(ResultTest, WhereOnlyThinkingExistsTheHintReadsTheThinking) {
  on("GET " + job_path(kJob, "/result"), 409, error_body("not_completed", "not completed"));
  json::object job = envelope(kJob, "incomplete");
  job["total_chars"] = 0;
  job["reasoning_chars"] = 40;
  on("GET " + job_path(kJob), 200, job);
  const std::string command = std::string("ponder result --part reasoning ") + kJob;
  EXPECT_THAT(run_ponder({"result", kJob}).err, HasSubstr(command + " --home "));
  job["total_chars"] = 3;
  on("GET " + job_path(kJob), 200, job);
  EXPECT_THAT(run_ponder({"result", kJob}).err, HasSubstr("mend it"));
}

TEST_F(ResultTest, AnExpiredOrUnknownJobIs4) {
  on("GET " + job_path(kJob, "/result"), 410, error_body("gone", "expired"));
  on("GET " + job_path(kOtherJob, "/result"), 404, error_body("job_unknown", "unknown"));
  EXPECT_EQ(run_ponder({"result", kJob}).exit_code, 4);
  EXPECT_EQ(run_ponder({"result", kOtherJob}).exit_code, 4);
  EXPECT_EQ(run_ponder({"result", "Not-An-Id"}).exit_code, 4);
  EXPECT_EQ(run_ponder({"result", kJob, "--part", "all"}).exit_code, 2);
}

using ChangeTest = CliTest;

TEST_F(ChangeTest, CancelPrintsTheFinalState) {
  on("POST " + job_path(kJob, "/cancel"), 200, envelope(kJob, "cancelled"));
  on("POST " + job_path(kOtherJob, "/cancel"), 200, envelope(kOtherJob, "completed"));
  const Ended both = run_ponder({"cancel", kJob, kOtherJob});
  EXPECT_EQ(both.exit_code, 0);
  EXPECT_EQ(both.out, std::string(kJob) + " cancelled\n" + kOtherJob + " completed\n");
  EXPECT_EQ(run_ponder({"cancel", kJob, "--json"}).document().at("state"), "cancelled");
}

TEST_F(ChangeTest, RmOfAJobThatHasNotEndedIs3) {
  on("DELETE " + job_path(kJob), 409, error_body("not_terminal", "still running"));
  on("DELETE " + job_path(kOtherJob), 204, nullptr);
  EXPECT_EQ(run_ponder({"rm", kJob}).exit_code, 3);
  const Ended removed = run_ponder({"rm", kOtherJob});
  EXPECT_EQ(removed.exit_code, 0);
  EXPECT_EQ(removed.out, std::string(kOtherJob) + "\n");
}

TEST_F(ChangeTest, PinAndUnpinSendWhatTheySay) {
  on("POST " + job_path(kJob, "/pin"), 200, envelope(kJob, "completed"));
  EXPECT_EQ(run_ponder({"pin", kJob}).out, std::string(kJob) + " pinned\n");
  EXPECT_EQ(run_ponder({"unpin", kJob}).exit_code, 0);
  EXPECT_EQ(server_->seen().at(0).body, R"({"pinned":true})");
  EXPECT_EQ(server_->seen().at(1).body, R"({"pinned":false})");
}

TEST_F(ChangeTest, LogsPrintsWhatThereIsAndFollowsToTheEnd) {
  on("GET " + job_path(kJob, "/result"), 200, json::object{{"text", "so far"}});
  on("GET " + job_path(kJob, "/events"), [](const SeenRequest&, Peer& peer) {
    peer.begin_events();
    peer.event("1", "reasoning", json::object{{"text", "thought "}});
    peer.event("2", "answer", json::object{{"text", "word"}});
    peer.event("3", "end", envelope(kJob, "completed"));
    peer.end_events();
  });
  EXPECT_EQ(run_ponder({"logs", kJob}).out, "so far");
  EXPECT_EQ(run_ponder({"logs", "-f", kJob}).out, "word");
  EXPECT_EQ(run_ponder({"logs", "-f", "--reasoning", kJob}).out, "thought \n\nword");
}

}  // namespace
}  // namespace ponder::client_test
