// health, models, version, mcp, and a daemon elsewhere.
#include <filesystem>

#include "tests/unit/client/cli_fixture.h"

namespace ponder::client_test {
namespace {
using testing::HasSubstr;

using HealthTest = CliTest;

TEST_F(HealthTest, IsOneInteger) {
  struct Case {
    const char* state;
    json::array degraded;
    int code, strict_code;
  };
  for (const Case& each :
       {Case{"ready", {}, 0, 0}, Case{"busy", {}, 0, 0}, Case{"busy", {"slow"}, 0, 3},
        Case{"loading", {}, 3, 3}, Case{"failed", {}, 3, 3}}) {
    on("GET /health", each.code == 0 ? 200 : 503,
       json::object{{"state", each.state}, {"degraded", each.degraded}});
    EXPECT_EQ(run_ponder({"health"}).exit_code, each.code) << each.state;
    const Ended strict = run_ponder({"health", "--strict", "--json"});
    EXPECT_EQ(strict.exit_code, each.strict_code) << each.state;
    EXPECT_EQ(strict.document().at("state"), each.state);
    EXPECT_EQ(strict.document().at("schema_version"), 1);
  }
}

TEST_F(HealthTest, WhatIsSlowIsSaidWithItsSpeedAndTheUsualOne) {
  on("GET /health", 200,
     json::object{{"state", "busy"},
                  {"degraded", json::array{"slow"}},
                  {"engine", {{"tokens_per_s", 4.12}, {"usual_tokens_per_s", 12.6}}}});
  EXPECT_EQ(run_ponder({"health"}).out,
            "busy: degraded: slow, 4.1 tokens/s, usually 12.6 tokens/s\n");
}

TEST_F(HealthTest, AReasonAndWhatToDoHaveALineEach) {
  on("GET /health", 503,
     json::object{{"state", "failed"},
                  {"reason", "a.gguf is not usable: it ends early; download it again"},
                  {"queue", {{"running", 0}, {"ask", 1}, {"batch", 2}}}});
  on("GET /v1/jobs", 200, json::object{{"jobs", json::array()}, {"next_before", nullptr}});
  EXPECT_EQ(run_ponder({"health"}).out,
            "failed: a.gguf is not usable: it ends early\n  download it again\n"
            "  0 running, 3 waiting\n");
  EXPECT_THAT(run_ponder({"status"}).out,
              testing::StartsWith("daemon   failed: a.gguf is not usable: it ends early\n"
                                  "         download it again\n"
                                  "         0 running, 3 waiting\n"));
}

TEST_F(HealthTest, ASilentDaemonIsUnreachable) {
  server_.reset();
  const Ended ended = run_ponder({"health", "--json"});
  EXPECT_EQ(ended.exit_code, 69);
  EXPECT_EQ(ended.document().at("error").at("code"), "unreachable");
}

TEST_F(HealthTest, AWrongCommandLineIsJsonToo) {
  const Ended ended = run_ponder({"health", "--json", "--frobnicate"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_EQ(ended.document().at("error").at("code"), "bad_request");
}

TEST_F(HealthTest, VersionNamesBoth) {
  on("GET /health", 200, json::object{{"state", "ready"}, {"version", "9.9.9"}, {"build", "b"}});
  EXPECT_EQ(run_ponder({"version"}).out, "ponder " PONDER_VERSION "\nponderd 9.9.9\n");
  const json::object document = run_ponder({"version", "--json"}).document();
  EXPECT_EQ(document.at("daemon").at("version"), "9.9.9");
  server_.reset();
  const Ended alone = run_ponder({"version"});
  EXPECT_EQ(alone.exit_code, 0);
  EXPECT_EQ(alone.out, "ponder " PONDER_VERSION "\n");
}

TEST_F(HealthTest, ModelsListsTheServedOneAndTheFiles) {
  on("GET /v1/models", 200, json::object{{"data", json::array{json::object{{"id", "pebble"}}}}});
  std::filesystem::create_directories(home_ / "models/sub");
  write_file(home_ / "models/sub/a.gguf", "xy");
  write_file(home_ / "models/notes.txt", "");
  const json::object document = run_ponder({"models", "--json"}).document();
  EXPECT_EQ(document.at("served").at(0).at("id"), "pebble");
  ASSERT_EQ(document.at("files").as_array().size(), 1u);
  EXPECT_EQ(document.at("files").at(0).at("path"), json::value(home_ / "models/sub/a.gguf"));
  EXPECT_EQ(document.at("files").at(0).at("bytes"), 2);
}

TEST_F(HealthTest, McpInstallNamesTheManualWay) {
  const Ended ended = run_ponder({"mcp", "install", "--client", "codex"});
  EXPECT_EQ(ended.exit_code, 2);
  EXPECT_THAT(ended.err, HasSubstr("claude mcp add ponder -- "));
}

TEST(ElsewhereTest, PonderUrlReachesADaemonWithItsKeyAndOwnerCommandsRefuse) {
  const TempDir dir;
  ScriptedServer server([](const SeenRequest& request, Peer& peer) {
    if (request.head.find("Authorization: Bearer the-key\r\n") == std::string::npos)
      return peer.answer(401, error_body("unauthorized", "the key is wrong"));
    peer.answer(200, json::object{{"state", "ready"}});
  });
  write_file(dir / "key", "the-key\n");
  RunOptions options{.program = PONDER_PROGRAM, .arguments = {"health", "--home", dir.path()}};
  options.environment["PONDER_URL"] = "http://127.0.0.1:" + std::to_string(server.port());
  EXPECT_EQ(run(options).exit_code, 2);
  options.environment["PONDER_KEY_FILE"] = dir / "key";
  EXPECT_EQ(run(options).exit_code, 0);
  for (const char* command : {"start", "stop"}) {
    options.arguments[0] = command;
    EXPECT_EQ(run(options).exit_code, 2) << command;
  }
  EXPECT_FALSE(std::filesystem::exists(dir / "stopped"));
}

}  // namespace
}  // namespace ponder::client_test
