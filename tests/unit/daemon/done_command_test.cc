// The owner's command for ended jobs, and what is said where nothing brings the daemon back.
#include "daemon/runtime/done_command.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "daemon/runtime/restart.h"
#include "engine/base/ids.h"

namespace ponder::daemon {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class DoneCommandTest : public ::testing::Test {
 protected:
  DoneCommandTest() : dir_(fs::temp_directory_path() / ("ponder-done-" + random_hex(8))) {
    fs::create_directories(dir_);
  }
  ~DoneCommandTest() override {
    std::error_code ec;
    fs::remove_all(dir_, ec);
  }
  std::string script(const std::string& body) {
    const fs::path path = dir_ / "done.sh";
    std::ofstream(path) << "#!/bin/sh\n" << body;
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  std::string read(const char* name) {
    std::ifstream file(dir_ / name);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
  }
  /// What the file holds, once it is there and whole (it is made under another name).
  std::string said(const char* name) {
    for (int i = 0; i < 1000 && !fs::exists(dir_ / name); ++i)
      ::usleep(10'000);
    return read(name);
  }

  fs::path dir_;
};

TEST_F(DoneCommandTest, AnotherCommandRunsForWhatEndsFromThenOn) {
  DoneCommand command({});
  command.run("a", "completed");
  command.set({script("echo $1 >" + (dir_ / "new").string() + "; mv " + (dir_ / "new").string() +
                      " " + (dir_ / "ran").string() + "\n")});
  command.run("b", "completed");
  EXPECT_EQ(said("ran"), "b\n");
  command.set({});
  command.run("c", "completed");
  EXPECT_EQ(read("ran"), "b\n");
}

TEST_F(DoneCommandTest, RunsWithIdAndStateAndNothingOfTheEnvironment) {
  ::setenv("PONDER_DONE_SECRET", "secret", 1);
  const std::string out = (dir_ / "out").string();
  DoneCommand command(
      {script("(echo \"$@\"; env) > " + out + ".new; mv " + out + ".new " + out), "a b", "$(x)"});
  command.run("id", "completed");
  const std::string text = said("out");
  EXPECT_EQ(text.substr(0, text.find('\n')), "a b $(x) id completed");
  EXPECT_EQ(text.find("secret"), std::string::npos);
  EXPECT_NE(text.find("PATH="), std::string::npos);
}

TEST_F(DoneCommandTest, OneThatHangsIsKilledAndTheNextRuns) {
  const std::string out = (dir_ / "out").string();
  DoneCommand command(
      {script("[ $1 = hang ] && sleep 1000\necho $1 > " + out + ".new; mv " + out + ".new " + out)},
      200ms);
  command.run("hang", "completed");
  command.run("next", "completed");
  EXPECT_EQ(said("out"), "next\n");
}

TEST_F(DoneCommandTest, TheEndKillsWhatRuns) {
  const auto began = std::chrono::steady_clock::now();
  {
    DoneCommand command({script("touch " + (dir_ / "runs").string() + "; sleep 1000")}, 1h);
    command.run("id", "failed");
    said("runs");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s);
}

TEST_F(DoneCommandTest, AProgramThatIsNotThereAndNoProgramAreNoFault) {
  DoneCommand missing({(dir_ / "nothing").string()});
  missing.run("id", "completed");
  DoneCommand none({});
  none.run("id", "completed");
}

TEST_F(DoneCommandTest, AServiceThatComesBackIsRecognised) {
  ServicePlaces places;
  places.system_units = {dir_ / "system"};
  places.user_units = dir_ / "user";
  places.linger = dir_ / "linger";
  places.user = "me";
  EXPECT_NE(restart_warning(places).find("nothing starts"), std::string::npos);
  fs::create_directories(dir_ / "user" / "default.target.wants");
  std::ofstream(dir_ / "user" / "ponderd.service") << "";
  EXPECT_NE(restart_warning(places).find("nothing starts"), std::string::npos);  // not enabled
  std::ofstream(dir_ / "user" / "default.target.wants" / "ponderd.service") << "";
  EXPECT_NE(restart_warning(places).find("enable-linger me"), std::string::npos);
  fs::create_directories(dir_ / "linger");
  std::ofstream(dir_ / "linger" / "me") << "";
  EXPECT_EQ(restart_warning(places), "");
  fs::remove_all(dir_ / "user");
  fs::create_directories(dir_ / "system" / "multi-user.target.wants");
  std::ofstream(dir_ / "system" / "multi-user.target.wants" / "ponder.service") << "";
  EXPECT_EQ(restart_warning(places), "");
}

}  // namespace
}  // namespace ponder::daemon
