// ps, status, show, and ids as people type them.
#include "tests/unit/client/cli_fixture.h"

namespace ponder::client_test {
namespace {
using testing::HasSubstr;
using testing::Not;

json::value page(const std::vector<json::object>& jobs, json::value next = nullptr) {
  return json::object{{"jobs", json::array(jobs.begin(), jobs.end())}, {"next_before", next}};
}

using IdsTest = CliTest;

TEST_F(IdsTest, AUniquePrefixIsLookedUpOverAllPages) {
  on("GET /v1/jobs", [](const SeenRequest& request, Peer& peer) {
    if (request.target.find("before=") == std::string::npos)
      return peer.answer(200, page({envelope("02aaaaaaaaaaaaaaaaaaaaaaaa", "queued")},
                                   "02aaaaaaaaaaaaaaaaaaaaaaaa"));
    peer.answer(200, page({envelope(kOtherJob, "running"), envelope(kJob, "completed")}));
  });
  on("GET " + job_path(kJob), 200, envelope(kJob, "completed"));
  const std::string whole = kJob;
  EXPECT_EQ(run_ponder({"show", whole.substr(0, 26)}).exit_code, 0);
  EXPECT_EQ(server_->count("GET /v1/jobs"), 0) << "a whole id is not looked up";
  const Ended ambiguous = run_ponder({"show", whole.substr(0, 25)});
  EXPECT_EQ(ambiguous.exit_code, 2);
  EXPECT_THAT(ambiguous.err, HasSubstr(kOtherJob));
  EXPECT_EQ(run_ponder({"show", "zz"}).exit_code, 4);

  on("GET /v1/jobs", 200, page({envelope(kJob, "completed")}));
  const Ended found = run_ponder({"show", whole.substr(0, 8), "--json"});
  EXPECT_EQ(found.exit_code, 0);
  EXPECT_EQ(found.document().at("job_id"), kJob);
}

TEST_F(IdsTest, LastIsTheNewestJobOfThisDirectory) {
  on("GET /v1/jobs", 200, page({envelope(kJob, "completed")}));
  on("GET " + job_path(kJob), 200, envelope(kJob, "completed"));
  RunOptions options = ponder({"wait", "@last"});
  options.directory = home_.path();
  const Ended ended = run(options);
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(ended.out, std::string(kJob) + " completed\n");
  std::string workspace = home_.path();
  for (std::size_t at; (at = workspace.find('/')) != std::string::npos;)
    workspace.replace(at, 1, "%2F");
  EXPECT_EQ(server_->seen().at(0).target, "/v1/jobs?workspace=" + workspace + "&limit=1");
  on("GET /v1/jobs", 200, page({}));
  EXPECT_EQ(run(options).exit_code, 4);
}

using PsTest = CliTest;

TEST_F(PsTest, ListsWhatIsAliveAndWithAllWhatHasEnded) {
  on("GET /v1/jobs", [](const SeenRequest& request, Peer& peer) {
    if (request.target.find("state=queued") != std::string::npos)
      return peer.answer(200, page({envelope(kJob, "queued")}));
    if (request.target.find("state=running") != std::string::npos)
      return peer.answer(200, page({envelope(kOtherJob, "running"), envelope(kJob, "running")}));
    peer.answer(200, page({envelope(kOtherJob, "running"), envelope(kJob, "completed")}));
  });
  const json::object alive = run_ponder({"ps", "--json"}).document();
  EXPECT_EQ(alive.at("schema_version"), 1);
  ASSERT_EQ(alive.at("jobs").as_array().size(), 2u)
      << "a job that just began to run is listed once";
  EXPECT_EQ(alive.at("jobs").at(0).at("job_id"), kOtherJob) << "newest first";
  EXPECT_EQ(alive.at("jobs").at(1).at("state"), "running");
  const Ended all = run_ponder({"ps", "-a"});
  EXPECT_EQ(all.exit_code, 0);
  EXPECT_THAT(all.out, testing::StartsWith("JOB"));
  EXPECT_THAT(all.out, HasSubstr("completed"));
}

TEST_F(PsTest, FiltersGoToTheDaemon) {
  on("GET /v1/jobs", 200, page({}));
  const Ended ended =
      run_ponder({"ps", "--state", "failed", "--label", "a b", "--workspace", "/w", "-n", "7"});
  EXPECT_EQ(ended.exit_code, 0);
  EXPECT_EQ(server_->seen().at(0).target,
            "/v1/jobs?label=a%20b&workspace=%2Fw&state=failed&limit=7");
  EXPECT_EQ(run_ponder({"ps", "--state", "lost"}).exit_code, 2);
  EXPECT_EQ(run_ponder({"ps", "--label", ""}).exit_code, 2);
}

TEST_F(PsTest, HelpSaysWherePrunedJobsAreAndWhoStartsTheDaemon) {
  EXPECT_THAT(run_ponder({"ps", "--help"}).out, HasSubstr("-s expired"));
  EXPECT_THAT(run_ponder({"prune", "--help"}).out, HasSubstr("ponder ps -s expired"));
  EXPECT_THAT(run_ponder({"status", "--help"}).out, HasSubstr("ask, wait, result"));
}

using StatusTest = CliTest;

TEST_F(StatusTest, OneScreenAboutTheDaemon) {
  on("GET /health", 200,
     json::object{{"state", "busy"},
                  {"model", {{"id", "pebble"}, {"class", "demo"}, {"n_ctx", 32'768}}},
                  {"engine", {{"pid", 77}, {"device", "cpu"}, {"restarts", 2}, {"uptime_s", 7300}}},
                  {"queue", {{"running", 1}, {"ask", 0}, {"batch", 3}, {"limit", 1000}}},
                  {"store", {{"ok", true}, {"free_bytes", 1'610'612'736}}},
                  {"tcp", {{"addresses", json::array{"127.0.0.1:7663"}}, {"reason", nullptr}}},
                  {"version", "0.1.0"},
                  {"uptime_s", 9000}});
  on("GET /v1/jobs", 200, page({envelope(kJob, "running")}));
  const Ended ended = run_ponder({"status"});
  EXPECT_EQ(ended.exit_code, 0);
  for (const char* part : {"busy", "pebble", "demo model: not for real work", "process 77 on cpu",
                           "2 restarts", "3 batch jobs", "1.5 GiB free", "127.0.0.1:7663", kJob})
    EXPECT_THAT(ended.out, HasSubstr(part));
  const json::object document = run_ponder({"status", "--json"}).document();
  EXPECT_EQ(document.at("health").at("state"), "busy");
  EXPECT_EQ(document.at("jobs").at(0).at("job_id"), kJob);
}

TEST_F(StatusTest, OfAJobItExitsByItsState) {
  const std::map<std::string, int> codes{{"queued", 3},     {"running", 3},    {"completed", 0},
                                         {"failed", 1},     {"incomplete", 5}, {"cancelled", 6},
                                         {"interrupted", 6}};
  for (const auto& [state, code] : codes) {
    on("GET " + job_path(kJob), 200, envelope(kJob, state));
    const Ended ended = run_ponder({"status", kJob, "--wait-s", "0.5"});
    EXPECT_EQ(ended.exit_code, code) << state;
    EXPECT_THAT(ended.out, HasSubstr("state     " + state));
  }
  EXPECT_EQ(server_->seen().at(0).target, job_path(kJob, "?wait_s=0.500"));
  on("GET " + job_path(kJob), 404, error_body("job_unknown", "unknown"));
  EXPECT_EQ(run_ponder({"status", kJob}).exit_code, 4);
}

TEST_F(StatusTest, OfTheDaemonListsThisDirectoryUnlessAllAreWanted) {
  on("GET /health", 200, json::object{{"state", "ready"}});
  on("GET /v1/jobs", 200, page({}));
  run_ponder({"status"});
  EXPECT_THAT(server_->seen().at(0).target, HasSubstr("?workspace=%2F"));
  run_ponder({"status", "--all-workspaces"});
  EXPECT_EQ(server_->count_of_target("/v1/jobs?limit=5"), 1);
}

TEST_F(StatusTest, OfSeveralJobsWakesWhenOneOfThemMoves) {
  on("GET " + job_path(kJob), 200, envelope(kJob, "completed"));
  on("GET " + job_path(kOtherJob), [](const SeenRequest& request, Peer& peer) {
    const bool waits = request.target.ends_with("?wait_s=1.000&seen=running");
    peer.answer(200, envelope(kOtherJob, waits ? "failed" : "running"));
  });
  const std::vector<std::string> line{"status",  "--job-ids", kJob, "--job-ids",
                                      kOtherJob, "--wait-s",  "50"};
  const Ended table = run_ponder(line);
  EXPECT_EQ(table.exit_code, 1) << "the worst";
  EXPECT_THAT(table.out, HasSubstr("failed"));
  on("GET /health", 200, json::object{{"state", "ready"}});
  on("GET /v1/jobs", 200, page({envelope(kOtherJob, "running")}));
  EXPECT_THAT(run_ponder({"status", "--wait-s", "50"}).out, HasSubstr("failed")) << "of a list too";
  const Ended now = run_ponder({"status", "--job-ids", kJob, "--job-ids", kOtherJob, "--json"});
  EXPECT_EQ(now.exit_code, 3);
  EXPECT_EQ(now.document().at("jobs").at(1).at("state"), "running");
  EXPECT_EQ(run_ponder({"status", kJob, "--job-ids", kJob}).exit_code, 2);
}

TEST_F(StatusTest, HealthProbesWithOneTokenAndIsNotReadyWithoutIt) {
  on("GET /health", 200, json::object{{"state", "ready"}});
  on("POST /v1/chat/completions", 200, json::object{});
  const Ended well = run_ponder({"health", "--probe"});
  EXPECT_EQ(well.exit_code, 0);
  EXPECT_THAT(well.out, HasSubstr("probe: one token in "));
  EXPECT_EQ(server_->seen().back().object().at("max_tokens"), 1);
  on("POST /v1/chat/completions", 500, error_body("engine_error", "the engine is broken"));
  const Ended broken = run_ponder({"health", "--probe"});
  EXPECT_EQ(broken.exit_code, 3);
  EXPECT_THAT(broken.out, HasSubstr("probe failed: the engine is broken"));
  const json::object document = run_ponder({"health", "--probe", "--json"}).document();
  EXPECT_EQ(document.at("probe").at("ok"), false);
  EXPECT_EQ(document.at("probe").at("error"), "the engine is broken");
  run_ponder({"health"});
  EXPECT_EQ(server_->count("POST /v1/chat/completions"), 3) << "only where it is asked for";
}

TEST_F(StatusTest, ShowIsTheWholeEnvelope) {
  json::object job = envelope(kJob, "failed");
  job["tokens"] = json::object{{"prompt", 12}};
  on("GET " + job_path(kJob), 200, job);
  const std::string question = "What is\n" + std::string(400, 'x') + " the answer?";
  on("GET " + job_path(kJob, "/result"), 200, json::object{{"text", question}, {"seed", 77}});
  const Ended words = run_ponder({"show", kJob});
  EXPECT_EQ(server_->seen().back().target, job_path(kJob, "/result?part=request"));
  EXPECT_THAT(words.out, HasSubstr("\nrequest: What is xxx"));
  EXPECT_THAT(words.out, HasSubstr("xxx [120 characters] xxx"));
  EXPECT_THAT(words.out, HasSubstr("xxx the answer?\nseed: 77\n"));
  EXPECT_EQ(words.exit_code, 0);
  EXPECT_THAT(words.out, HasSubstr("tokens.prompt: 12\n"));
  EXPECT_THAT(words.out, HasSubstr("reason: -\n"));
  json::object expected{{"schema_version", 1}};
  for (const auto& [key, value] : job)
    expected[key] = value;
  EXPECT_EQ(run_ponder({"show", kJob, "--json"}).document(), expected);
  on("GET " + job_path(kJob, "/result"), 410, error_body("gone", "expired"));
  EXPECT_THAT(run_ponder({"show", kJob}).out, testing::Not(HasSubstr("request:")));
}

TEST_F(StatusTest, TopAsJsonIsOneDocument) {
  on("GET /health", 200, json::object{{"state", "busy"}});
  on("GET /v1/jobs", [](const SeenRequest& request, Peer& peer) {
    const bool runs = request.target.find("state=running") != std::string::npos;
    const bool waits = request.target.find("state=queued") != std::string::npos;
    peer.answer(200, runs    ? page({envelope(kOtherJob, "running")})
                     : waits ? page({})
                             : page({envelope(kJob, "completed"), envelope(kOtherJob, "running")}));
  });
  const Ended ended = run_ponder({"top", "--json"});
  EXPECT_EQ(ended.exit_code, 0);
  const json::object document = ended.document();
  EXPECT_EQ(document.at("health").at("state"), "busy");
  ASSERT_EQ(document.at("jobs").as_array().size(), 2u);
  EXPECT_EQ(document.at("jobs").at(0).at("job_id"), kOtherJob);
  EXPECT_THAT(run_ponder({"top"}).out, HasSubstr(kJob));
}

}  // namespace
}  // namespace ponder::client_test
