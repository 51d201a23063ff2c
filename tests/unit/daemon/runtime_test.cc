// Lock, key, detaching: what a start does before it serves.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>

#include "daemon/runtime/api_key.h"
#include "daemon/runtime/detach.h"
#include "daemon/runtime/instance_lock.h"
#include "daemon/runtime/model_file.h"
#include "daemon/runtime/network.h"
#include "daemon/runtime/no_model.h"
#include "daemon/runtime/options.h"
#include "daemon/runtime/started_with.h"
#include "engine/base/ids.h"

namespace ponder::daemon {
namespace {

namespace fs = std::filesystem;

class Runtime : public testing::Test {
 protected:
  void SetUp() override {
    directory = fs::temp_directory_path() / ("ponder-runtime-" + random_hex(6));
    fs::create_directory(directory);
    old_umask = ::umask(0);  // modes must not hang on it
  }
  void TearDown() override {
    ::umask(old_umask);
    fs::remove_all(directory);
  }
  static unsigned mode(const fs::path& file) {
    struct stat s {};
    return ::stat(file.c_str(), &s) == 0 ? s.st_mode & 0777u : 0u;
  }
  static std::string text(const fs::path& file) {
    std::ifstream stream(file);
    std::stringstream out;
    out << stream.rdbuf();
    return out.str();
  }
  fs::path directory;
  mode_t old_umask = 0;
};

TEST_F(Runtime, LockNamesItsHolderAndOutlivesNoProcess) {
  const fs::path file = directory / "ponderd.lock";
  {
    auto lock = InstanceLock::acquire(file);
    ASSERT_TRUE(lock) << lock.error().message;
    EXPECT_EQ(text(file), std::to_string(::getpid()) + "\n");
    EXPECT_EQ(mode(file), 0600u);
    const auto second = InstanceLock::acquire(file);
    ASSERT_FALSE(second);
    EXPECT_NE(second.error().message.find("pid " + std::to_string(::getpid())), std::string::npos)
        << second.error().message;
  }
  EXPECT_EQ(text(file), "");
  EXPECT_TRUE(InstanceLock::acquire(file));
}

TEST_F(Runtime, ALockFileThatKeepsItsOwnerOutIsMended) {
  if (::geteuid() == 0) GTEST_SKIP() << "no mode keeps root out";
  const fs::path file = directory / "ponderd.lock";
  for (const mode_t closed : {0400, 0000}) {
    std::ofstream(file) << "77\n";
    ASSERT_EQ(::chmod(file.c_str(), closed), 0);
    const auto lock = InstanceLock::acquire(file);
    EXPECT_TRUE(lock) << lock.error().message;
    EXPECT_EQ(mode(file), 0600u);
  }
}

TEST_F(Runtime, WhoHoldsTheLockIsInTheDetailsOfTheError) {
  const fs::path file = directory / "ponderd.lock";
  const auto lock = InstanceLock::acquire(file);
  ASSERT_TRUE(lock);
  const auto second = InstanceLock::acquire(file);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().details.at(InstanceLock::kHeld), ::getpid());
  // A directory in its place is nobody's lock.
  fs::create_directory(directory / "dir");
  const auto none = InstanceLock::acquire(directory / "dir");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().details.count(InstanceLock::kHeld), 0u);
  EXPECT_NE(none.error().message.find("Is a directory"), std::string::npos);
  EXPECT_FALSE(none.error().hint.empty());
}

TEST_F(Runtime, LockKnowsThatItsFileWasRemovedOrReplaced) {
  const fs::path file = directory / "ponderd.lock";
  const auto lock = InstanceLock::acquire(file);
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_TRUE(lock->is_in_place());
  fs::remove(file);
  EXPECT_FALSE(lock->is_in_place());
  const auto second = InstanceLock::acquire(file);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_TRUE(second->is_in_place());
  EXPECT_FALSE(lock->is_in_place());
}

TEST_F(Runtime, LockDoesNotFollowALink) {
  std::ofstream(directory / "target") << "precious";
  fs::create_symlink(directory / "target", directory / "ponderd.lock");
  EXPECT_FALSE(InstanceLock::acquire(directory / "ponderd.lock"));
  EXPECT_EQ(text(directory / "target"), "precious");
}

// Sixteen processes start at the same moment; one wins, fifteen hear its pid.
TEST_F(Runtime, LockHasOneWinnerAmongSixteen) {
  const fs::path file = directory / "ponderd.lock";
  for (int round = 0; round < 3; ++round) {
    int go[2], done[2], verdict[2];
    ASSERT_EQ(::pipe(go) | ::pipe(done) | ::pipe(verdict), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 16; ++i) {
      const pid_t child = ::fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        char byte = 0;
        ::close(go[1]);
        ::close(done[1]);
        (void)!::read(go[0], &byte, 1);  // returns when the parent closes its end
        const auto lock = InstanceLock::acquire(file);
        const bool named = !lock && lock.error().message.find("(pid ") != std::string::npos;
        const char said = lock ? 'W' : named ? 'L' : '?';
        (void)!::write(verdict[1], &said, 1);
        (void)!::read(done[0], &byte, 1);
        ::_exit(0);
      }
      children.push_back(child);
    }
    ::close(go[1]);
    std::string verdicts;
    for (int i = 0; i < 16; ++i) {
      char said = 0;
      ASSERT_EQ(::read(verdict[0], &said, 1), 1);
      verdicts += said;
    }
    EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), 'W'), 1) << verdicts;
    EXPECT_EQ(std::count(verdicts.begin(), verdicts.end(), 'L'), 15) << verdicts;
    ::close(done[1]);
    for (const pid_t child : children)
      ::waitpid(child, nullptr, 0);
    for (const int fd : {go[0], done[0], verdict[0], verdict[1]})
      ::close(fd);
  }
}

TEST_F(Runtime, KeyIsMadeOncePrivately) {
  const fs::path file = directory / "api-key";
  const auto key = load_or_make_api_key(file);
  ASSERT_TRUE(key) << key.error().message;
  EXPECT_EQ(key->size(), 64u);
  EXPECT_EQ(mode(file), 0600u);
  EXPECT_EQ(*load_or_make_api_key(file), *key);
  EXPECT_EQ(std::distance(fs::directory_iterator(directory), {}), 1) << "nothing left beside it";
}

TEST_F(Runtime, KeyFileIsClosedToOthersAndRefusedIfUnfit) {
  const fs::path file = directory / "api-key";
  std::ofstream(file) << std::string(32, 'k') << "\n";
  fs::permissions(file, fs::perms(0644));
  EXPECT_EQ(*load_or_make_api_key(file), std::string(32, 'k'));
  EXPECT_EQ(mode(file), 0600u);
  for (const std::string& unfit : {std::string(), std::string(31, 'k'), std::string(40, '\x01')}) {
    std::ofstream(file) << unfit;
    EXPECT_FALSE(load_or_make_api_key(file));
  }
  fs::remove(file);
  fs::create_symlink(directory / "elsewhere", file);
  EXPECT_FALSE(load_or_make_api_key(file));
}

/// Runs `child_does` in a process that detached itself; what its starter exited with and said.
struct Outcome {
  int exit_code = -1;
  std::string said;
};
template <class Child>
Outcome start_detached(const fs::path& log, Child child_does) {
  int said[2];
  EXPECT_EQ(::pipe(said), 0);
  const pid_t starter = ::fork();
  if (starter == 0) {
    ::dup2(said[1], 2);
    ::close(said[0]);
    auto report = detach(log);
    if (!report) ::_exit(99);
    child_does(*report);
    ::_exit(0);
  }
  ::close(said[1]);
  Outcome outcome;
  int status = 0;
  ::waitpid(starter, &status, 0);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  // Ends although the detached process may live on: it holds nothing of its starter.
  char buffer[512];
  for (ssize_t n; (n = ::read(said[0], buffer, sizeof buffer)) > 0;)
    outcome.said.append(buffer, static_cast<std::size_t>(n));
  ::close(said[0]);
  return outcome;
}

TEST_F(Runtime, DetachedStartReturnsOnceItServes) {
  const fs::path log = directory / "ponderd.log";
  const fs::path proof = directory / "proof";
  const Outcome outcome = start_detached(log, [&](StartReport& report) {
    std::ofstream(proof) << (::getsid(0) == ::getpid()) << " " << fs::current_path().string();
    std::fputs("a line for the log\n", stderr);
    report.serving();
  });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.said, "");
  EXPECT_EQ(text(proof), "1 /");
  EXPECT_EQ(text(log), "a line for the log\n");
  EXPECT_EQ(mode(log), 0600u);
}

TEST_F(Runtime, DetachedStartPassesAWarningOnAndSucceeds) {
  const std::string long_reason = "no model; " + std::string(5000, 'x');
  const Outcome outcome = start_detached(directory / "ponderd.log",
                                         [&](StartReport& report) { report.serving(long_reason); });
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.said, "ponderd: warning: " + long_reason + "\n");
}

TEST_F(Runtime, DetachedStartSaysWhyItFailed) {
  const Outcome told = start_detached(
      directory / "ponderd.log", [](StartReport& report) { report.failed("the port is taken"); });
  EXPECT_EQ(told.exit_code, 1);
  EXPECT_EQ(told.said, "ponderd: the port is taken\n");
  const Outcome died = start_detached(directory / "ponderd.log", [](StartReport&) { ::_exit(3); });
  EXPECT_EQ(died.exit_code, 1);
  EXPECT_NE(died.said.find("ponderd.log"), std::string::npos);
}

ParsedOptions parse(std::vector<std::string> words) {
  words.insert(words.begin(), "ponderd");
  std::vector<char*> argv;
  for (std::string& word : words)
    argv.push_back(word.data());
  return parse_options(static_cast<int>(argv.size()), argv.data(), "ponderd 1");
}

TEST(StartedWith, KeepsTheWordsThatMakeTheSameDaemonAgain) {
  const char* argv[] = {"ponderd",   "--detach", "--home",  "/h",       "--model", "m/x.gguf",
                        "--ctx=512", "--config", "/c.toml", "--engine", "stub"};
  EXPECT_THAT(words_to_keep(11, argv, "/models"),
              testing::ElementsAre("--model", "/models/m/x.gguf", "--ctx=512", "--config",
                                   "/c.toml", "--engine", "stub"));
}

TEST(StartedWith, IsThereUntilTheCleanEnd) {
  const std::filesystem::path file =
      std::filesystem::path(testing::TempDir()) / "started-with-test";
  {
    const StartedWith kept(file, {"--ctx", "512"});
    std::ifstream in(file);
    std::string line;
    std::getline(in, line);
    EXPECT_EQ(line, R"(["--ctx","512"])");
  }
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Options, AreReadInAnyOrder) {
  const ParsedOptions parsed = parse({"--port", "0", "--detach", "--listen", "1.2.3.4:5", "--home",
                                      "/h", "--listen", "[::1]:6", "--engine", "stub"});
  ASSERT_FALSE(parsed.exit_code);
  EXPECT_EQ(parsed.options.home, "/h");
  EXPECT_TRUE(parsed.options.detach);
  EXPECT_EQ(
      parsed.options.flags,
      (FlagValues{{"engine", {"stub"}}, {"listen", {"1.2.3.4:5", "[::1]:6"}}, {"port", {"0"}}}));
}

TEST(Options, TheLastOfARepeatedFlagCounts) {
  const ParsedOptions parsed =
      parse({"--home", "/a", "--port", "0", "--home", "/b", "--port", "5"});
  ASSERT_FALSE(parsed.exit_code);
  EXPECT_EQ(parsed.options.home, "/b");
  EXPECT_EQ(parsed.options.flags, (FlagValues{{"port", {"5"}}}));
}

TEST(Options, WrongUseIsTwo) {
  EXPECT_EQ(parse({"--prot", "1"}).exit_code, 2);
  EXPECT_EQ(parse({"stray"}).exit_code, 2);
  EXPECT_EQ(parse({"--version"}).exit_code, 0);
}

class ModelFile : public Runtime {
 protected:
  void SetUp() override {
    Runtime::SetUp();
    for (const char* name : {"models", "etc", "here", "user"})
      fs::create_directory(directory / name);
  }
  void put(const std::string& name) { std::ofstream(directory / name) << "GGUF"; }
  /// The file found, below `directory`; or the error's message and hint.
  std::string find(const std::string& model, const std::string& origin) {
    Config config;
    config.engine.model = model;
    config.origin["model"] = origin;
    const auto found = find_model(config, {directory / "models", directory / "etc",
                                           directory / "here", (directory / "user").string()});
    if (!found) {
      EXPECT_EQ(found.error().code, ErrorCode::model_missing);
      return found.error().message + " | " + found.error().hint;
    }
    return found->lexically_relative(directory).string();
  }
};

TEST_F(ModelFile, ARelativeOneOfTheFileIsInTheModelsDirectoryThenBesideIt) {
  put("etc/m.gguf");
  put("here/m.gguf");
  EXPECT_EQ(find("m.gguf", "ponder.toml"), "etc/m.gguf");
  put("models/m.gguf");
  EXPECT_EQ(find("m.gguf", "ponder.toml"), "models/m.gguf");
  EXPECT_EQ(find("../here/m.gguf", "ponder.toml"), "here/m.gguf");
}

TEST_F(ModelFile, ARelativeOneOfAFlagIsHereThenInTheModelsDirectory) {
  put("models/m.gguf");
  put("etc/m.gguf");
  for (const char* origin : {"--model", "PONDER_MODEL"})
    EXPECT_EQ(find("m.gguf", origin), "models/m.gguf");
  put("here/m.gguf");
  for (const char* origin : {"--model", "PONDER_MODEL"})
    EXPECT_EQ(find("m.gguf", origin), "here/m.gguf");
}

TEST_F(ModelFile, ATildeIsTheHomeOfTheUser) {
  put("user/m.gguf");
  EXPECT_EQ(find("~/m.gguf", "ponder.toml"), "user/m.gguf");
  EXPECT_EQ(find("~/m.gguf", "--model"), "user/m.gguf");
}

TEST_F(ModelFile, WhatIsMissingOrADirectoryIsSaidWithTheFix) {
  const std::string missing = find("m.gguf", "ponder.toml");
  for (const fs::path& part :
       {directory / "models/m.gguf", directory / "etc/m.gguf", fs::path("--model FILE")})
    EXPECT_NE(missing.find(part.string()), std::string::npos) << missing;
  EXPECT_NE(missing.find("put a GGUF file in " + (directory / "models").string() + " "),
            std::string::npos)
      << missing;
  const std::string folder = find((directory / "etc").string(), "--model");
  EXPECT_EQ(folder.rfind((directory / "etc").string() + " is a directory", 0), 0u) << folder;
}

TEST(NoModelTest, GivesTheReasonWithTheFix) {
  const NoModel none(Error{ErrorCode::engine_error, "There is no model.", "Give --model FILE."});
  EXPECT_EQ(none.status().state, GeneratorState::failed);
  EXPECT_EQ(none.status().reason, "There is no model; give --model FILE");
}

class NetworkTest : public Runtime {
 protected:
  Places places() {
    Places p = *find_places(directory.string());
    return p;
  }
};

TEST_F(NetworkTest, ATakenPortIsFatalOnlyIfItWasAskedFor) {
  Server holder({});
  const auto port = holder.listen_tcp("127.0.0.1", 0);
  ASSERT_TRUE(port);
  Config config;
  config.network.port = *port;
  {
    Server server({});
    const auto network = open_network(server, places(), config);
    ASSERT_TRUE(network) << network.error().message;
    EXPECT_EQ(network->tcp.at("addresses"), json::array());
    EXPECT_NE(std::string(network->tcp.at("reason").as_string()).find(std::to_string(*port)),
              std::string::npos);
  }
  config.origin["port"] = "--port";
  Server server({});
  const auto network = open_network(server, places(), config);
  ASSERT_FALSE(network);
  EXPECT_NE(network.error().message.find("taken"), std::string::npos);
}

TEST_F(NetworkTest, PortZeroServesTheSocketOnly) {
  Config config;
  config.network.port = 0;
  Server server({});
  const auto network = open_network(server, places(), config);
  ASSERT_TRUE(network);
  EXPECT_EQ(network->tcp.at("addresses"), json::array());
  EXPECT_FALSE(network->tcp.at("reason").is_null());
}

}  // namespace
}  // namespace ponder::daemon
