// Clients that start the daemon: a copy of the real `ponder` with a stand-in for ponderd beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <memory>
#include <thread>

#include "clients/cpp/instance_lock.h"
#include "engine/base/unique_fd.h"
#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace ponder::client_test {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

class AutostartTest : public testing::Test {
 protected:
  AutostartTest() {
    fs::create_directory(dir_ / "bin");
    fs::copy_file(PONDER_PROGRAM, dir_ / "bin/ponder");
    fs::copy_file(STAND_IN_PONDERD, dir_ / "bin/ponderd");
  }
  ~AutostartTest() override {
    const int pid = client::read_instance_lock(home() + "/ponderd.lock").pid;
    if (pid > 0) ::kill(pid, SIGKILL);
  }
  std::string home() const { return dir_ / "home"; }
  RunOptions ponder(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--home", home()});
    return {.program = dir_ / "bin/ponder", .arguments = std::move(arguments)};
  }
  int lines_of(const std::string& name) const {
    const std::string text = read_file(home() + "/" + name);
    return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
  }
  /// Waits until there is a line in it; false after twenty seconds.
  bool has_line(const std::string& name) const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (lines_of(name) == 0) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return true;
  }
  TempDir dir_;
};

TEST_F(AutostartTest, AClientStartsTheDaemonWithNothingOfItsOwn) {
  const Ended ended = run(ponder({"models", "--json"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const std::string starts = read_file(home() + "/starts");
  EXPECT_THAT(starts, HasSubstr("--detach --home " + home()));
  EXPECT_THAT(starts, HasSubstr("0=/dev/null"));
  EXPECT_THAT(starts, testing::Not(HasSubstr("3="))) << "a descriptor was inherited";
  EXPECT_THAT(starts, testing::Not(HasSubstr("pipe"))) << "it would hold its starter's output open";
  EXPECT_EQ(fs::status(home()).permissions(), fs::perms::owner_all);
}

TEST_F(AutostartTest, SixteenRacingStartersMakeOneDaemon) {
  std::vector<std::unique_ptr<Running>> clients;
  for (int i = 0; i < 16; ++i)
    clients.push_back(std::make_unique<Running>(ponder({"models", "--json"})));
  for (const auto& client : clients) {
    const Ended ended = client->wait();
    EXPECT_EQ(ended.exit_code, 0) << ended.out << ended.err;
  }
  EXPECT_EQ(lines_of("starts"), 1);
}

TEST_F(AutostartTest, NoStartAndTheAskingCommandsStartNothing) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{{"models", "--no-start"},
                                                                     {"--no-start", "ask", "x"},
                                                                     {"health"},
                                                                     {"status"},
                                                                     {"ps"},
                                                                     {"show", "@last"},
                                                                     {"status", "@last"},
                                                                     {"doctor"},
                                                                     {"version"}}) {
    const Ended ended = run(ponder(arguments));
    EXPECT_EQ(lines_of("starts"), 0) << arguments.front();
    EXPECT_FALSE(fs::exists(home())) << arguments.front();
    if (arguments[0] != "doctor" && arguments[0] != "version") {
      EXPECT_EQ(ended.exit_code, 69) << arguments.front();
      EXPECT_THAT(ended.err, HasSubstr("ponder start")) << arguments.front();
    }
  }
}

TEST_F(AutostartTest, ADaemonThatRefusesToStartSaysWhy) {
  fs::create_directory(home());
  write_file(home() + "/fail", "the configuration is wrong");
  const Ended ended = run(ponder({"models"}));
  EXPECT_EQ(ended.exit_code, 69);
  EXPECT_THAT(ended.err,
              HasSubstr("the daemon did not start: ponderd: the configuration is wrong"));
  write_file(home() + "/fail", "line 2 is wrong\nline 3 as well\n  the manual lists the keys");
  const Ended hinted = run(ponder({"models"}));
  EXPECT_EQ(hinted.exit_code, 69);
  EXPECT_THAT(
      hinted.err,
      HasSubstr("ponder: the daemon did not start: ponderd: line 2 is wrong; line 3 as well\n"
                "  the manual lists the keys; its log is "));
}

TEST_F(AutostartTest, ADaemonThatRefusesAfterItsSocketIsOpenSaysWhyToo) {
  fs::create_directory(home());
  write_file(home() + "/fail_late", "the job database is damaged\n  move it aside");
  const Ended ended = run(ponder({"start"}));
  EXPECT_EQ(ended.exit_code, 74);
  EXPECT_THAT(ended.err,
              HasSubstr("ponder: the daemon did not start: ponderd: the job database is damaged\n"
                        "  move it aside; its log is "));
  EXPECT_THAT(ended.err, HasSubstr("`ponder --home " + home() + " serve`"));
}

TEST_F(AutostartTest, ADaemonThatSaysNothingIsQuotedFromItsLog) {
  fs::create_directories(home() + "/logs");
  write_file(home() + "/fail", "-");
  write_file(home() + "/logs/ponderd.log",
             "[t] [ponderd] [error] an older error\nponderd: the disk is full\n  make room\n"
             "[t] [ponderd] [info] something else\n");
  const Ended ended = run(ponder({"start"}));
  EXPECT_EQ(ended.exit_code, 74);
  EXPECT_THAT(ended.err, HasSubstr("did not start: ponderd: the disk is full\n  make room; "));
}

TEST_F(AutostartTest, StartIs3WithTheReasonWhenTheModelCannotBeUsed) {
  fs::create_directory(home());
  write_file(home() + "/health", R"({"state": "failed", "reason": "x.gguf is no GGUF file"})");
  const Ended ended = run(ponder({"start"}));
  EXPECT_EQ(ended.exit_code, 3);
  EXPECT_THAT(ended.err, HasSubstr("failed: x.gguf is no GGUF file"));
  EXPECT_THAT(ended.err, HasSubstr("ponder doctor --home " + home()));
  EXPECT_EQ(run(ponder({"start", "--json"})).document().at("health").at("state"), "failed");
}

TEST_F(AutostartTest, CommandsToCallNextNameTheHomeThatWasGiven) {
  const Ended down = run(ponder({"health"}));
  EXPECT_THAT(down.err, HasSubstr("\n  ponder start --home " + home() + "\n"));
}

TEST_F(AutostartTest, ADaemonThatIsBeingKilledIsStartedAnewByEveryCommandThatMay) {
  // It takes connections until its last descriptor is closed, and answers none.
  for (const auto& [arguments, what] :
       {std::pair{std::vector<std::string>{"start"}, "GET /health"},
        std::pair{std::vector<std::string>{"models", "--json"}, "GET /v1/models"},
        std::pair{std::vector<std::string>{"submit", "--force-new", "--idempotency-key", "k", "x"},
                  "POST /v1/jobs"}}) {
    fs::create_directory(home());
    auto dying = std::make_unique<ScriptedServer>(home() + "/ponderd.sock",
                                                  [](const SeenRequest&, Peer&) {});
    Running client(ponder(arguments));
    ASSERT_TRUE(dying->wait_for(what, 3)) << what;
    dying.reset();
    const Ended ended = client.wait();
    EXPECT_EQ(ended.exit_code, 0) << what << ended.err;
    EXPECT_EQ(lines_of("starts"), 1) << what;
    EXPECT_THAT(ended.err, testing::Not(HasSubstr("already"))) << what;
    const int pid = client::read_instance_lock(home() + "/ponderd.lock").pid;
    ASSERT_GT(pid, 0);
    ASSERT_EQ(run(ponder({"stop"})).exit_code, 0);
    fs::remove_all(home());
  }
}

TEST_F(AutostartTest, WhatCouldMakeASecondJobIsNotSentTwice) {
  fs::create_directory(home());
  const ScriptedServer dying(home() + "/ponderd.sock", [](const SeenRequest&, Peer&) {});
  EXPECT_EQ(run(ponder({"submit", "--force-new", "x"})).exit_code, 69);
  EXPECT_EQ(dying.count("POST /v1/jobs"), 1);
}

TEST_F(AutostartTest, AHolderOfTheLockThatIsGoingIsWaitedFor) {
  fs::create_directory(home());
  fs::permissions(home(), fs::perms::owner_all);
  UniqueFd lock(::open((home() + "/ponderd.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  ASSERT_EQ(::flock(lock.get(), LOCK_EX), 0);
  const std::string pid = std::to_string(::getpid()) + "\n";
  ASSERT_EQ(::write(lock.get(), pid.data(), pid.size()), static_cast<ssize_t>(pid.size()));
  Running client(ponder({"start"}));
  ASSERT_TRUE(has_line("starts"));
  ASSERT_TRUE(has_line("refused"));  // it has found the lock taken
  lock.reset();
  const Ended ended = client.wait();
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_EQ(lines_of("starts"), 2);
}

TEST_F(AutostartTest, AHomeThatIsNoDirectoryIsNamed) {
  const Ended ended =
      run({.program = dir_ / "bin/ponder", .arguments = {"--home", "/dev/null", "start"}});
  EXPECT_EQ(ended.exit_code, 74);
  EXPECT_THAT(ended.err, testing::StartsWith("ponder: /dev/null is not a directory\n"));
}

TEST_F(AutostartTest, WithoutPonderdTheErrorNamesIt) {
  fs::remove(dir_ / "bin/ponderd");
  const Ended ended = run(ponder({"models"}));
  EXPECT_EQ(ended.exit_code, 69);
  EXPECT_THAT(ended.err, HasSubstr(dir_ / "bin/ponderd"));
  EXPECT_FALSE(fs::exists(home()));
}

TEST_F(AutostartTest, StopKeepsItStoppedUntilStart) {
  ASSERT_EQ(run(ponder({"start"})).exit_code, 0);
  const int pid = client::read_instance_lock(home() + "/ponderd.lock").pid;
  ASSERT_GT(pid, 0);

  const Ended dry = run(ponder({"stop", "--dry-run"}));
  EXPECT_EQ(dry.exit_code, 0);
  EXPECT_THAT(dry.err, HasSubstr("would stop the daemon (process " + std::to_string(pid) + ")"));
  EXPECT_THAT(dry.err, HasSubstr("1 running and 2 waiting"));
  EXPECT_EQ(run(ponder({"health"})).exit_code, 0);

  const Ended stop = run(ponder({"stop", "--json"}));
  EXPECT_EQ(stop.exit_code, 0) << stop.out << stop.err;
  EXPECT_EQ(stop.document().at("daemon_pid"), pid);
  EXPECT_EQ(stop.document().at("stopped"), true);
  EXPECT_EQ(lines_of("stops"), 1) << "it says so only when the daemon is gone";

  const Ended asked = run(ponder({"ask", "x", "--json"}));
  EXPECT_EQ(asked.exit_code, 69);
  EXPECT_THAT(std::string(asked.document().at("error").at("message").as_string()),
              testing::MatchesRegex("stopped by its owner at 20.*Z; `ponder start` .with --home " +
                                    home() + "."));
  const Ended asked_in_words = run(ponder({"ask", "x"}));
  EXPECT_THAT(asked_in_words.err, HasSubstr("\n  ponder start --home " + home() + "\n"));
  EXPECT_EQ(lines_of("starts"), 1);

  const Ended again = run(ponder({"stop"}));
  EXPECT_EQ(again.exit_code, 0);
  EXPECT_THAT(again.err, HasSubstr("no daemon is running"));
  EXPECT_THAT(again.err, HasSubstr("until `ponder start --home " + home() + "`"));

  EXPECT_EQ(run(ponder({"start"})).exit_code, 0);
  EXPECT_EQ(lines_of("starts"), 2);
  EXPECT_EQ(run(ponder({"models", "--json"})).exit_code, 0);
  EXPECT_EQ(run(ponder({"stop", "--now"})).exit_code, 0);
}

TEST_F(AutostartTest, StopOfASuspendedDaemonSaysHowToGoOn) {
  ASSERT_EQ(run(ponder({"start"})).exit_code, 0);
  const int pid = client::read_instance_lock(home() + "/ponderd.lock").pid;
  ASSERT_GT(pid, 0);
  ::kill(pid, SIGSTOP);
  const Ended stop = run(ponder({"stop"}));
  EXPECT_EQ(stop.exit_code, 69);
  EXPECT_THAT(stop.err, HasSubstr("suspended"));
  EXPECT_THAT(stop.err, HasSubstr("kill -CONT " + std::to_string(pid)));
  EXPECT_THAT(stop.err, HasSubstr("ponder stop --now --home " + home()));
  EXPECT_FALSE(fs::exists(home() + "/stopped"));
  EXPECT_EQ(run(ponder({"stop", "--now"})).exit_code, 0);
}

TEST_F(AutostartTest, ServeBecomesPonderdWithItsOptions) {
  fs::create_directory(home());
  write_file(home() + "/fail", "only looking");
  write_file(home() + "/stopped", "");
  const Ended ended = run(ponder({"serve", "--port", "0", "--model", "[x].gguf"}));
  EXPECT_EQ(ended.exit_code, 1);
  EXPECT_THAT(read_file(home() + "/starts"),
              HasSubstr("--home " + home() + " --port 0 --model [x].gguf"));
  EXPECT_TRUE(fs::exists(home() + "/stopped")) << "only a daemon that serves takes the mark back";
}

TEST_F(AutostartTest, DoctorFindsABrokenInstallation) {
  fs::create_directory(home());
  write_file(home() + "/ponder.db", "this is no database at all");
  write_file(home() + "/bad_config", "ponderd: line 1 is wrong\n  the manual lists the keys\n");
  const Ended broken = run(ponder({"doctor"}));
  EXPECT_EQ(broken.exit_code, 1);
  EXPECT_THAT(broken.out, HasSubstr("ponder.db is not a SQLite database"));
  EXPECT_THAT(broken.out, HasSubstr("line 1 is wrong\n"));
  EXPECT_THAT(broken.out, HasSubstr("the manual lists the keys"));
  write_file(home() + "/ponder.db", std::string("SQLite format 3\0more", 20));
  EXPECT_THAT(run(ponder({"doctor"})).out, testing::Not(HasSubstr("is not a SQLite database")));

  fs::remove(home() + "/bad_config");
  write_file(home() + "/health", R"({"state": "failed", "reason": "no GGUF file"})");
  ASSERT_EQ(run(ponder({"start"})).exit_code, 3);
  const Ended failed = run(ponder({"doctor"}));
  EXPECT_EQ(failed.exit_code, 1);
  EXPECT_THAT(failed.out, HasSubstr("set model in " + home() + "/ponder.toml"));
}

TEST_F(AutostartTest, DoctorChecksWithoutChangingAnything) {
  const Ended fresh = run(ponder({"doctor", "--json"}));
  EXPECT_EQ(fresh.exit_code, 1) << "ponder-engine and ponder-mcp are not beside this copy";
  EXPECT_FALSE(fs::exists(home()));
  bool engine_is_missing = false;
  const json::object document = fresh.document();
  for (const json::value& check : document.at("checks").as_array()) {
    if (check.at("name") == "ponder-engine") engine_is_missing = check.at("state") == "fail";
    if (check.at("name") == "ponderd") {
      EXPECT_EQ(check.at("state"), "ok") << to_json(check);
    }
    if (check.at("name") == "daemon") {
      EXPECT_EQ(check.at("state"), "note") << to_json(check);
    }
  }
  EXPECT_TRUE(engine_is_missing);

  fs::create_directory(home());
  fs::permissions(home(), fs::perms::all);
  const Ended open = run(ponder({"doctor"}));
  EXPECT_THAT(open.out, HasSubstr("chmod 700 " + home()));
}

}  // namespace
}  // namespace ponder::client_test
