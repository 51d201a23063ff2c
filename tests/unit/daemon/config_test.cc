#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "daemon/config/keys.h"
#include "engine/base/ids.h"

namespace ponder::daemon {
namespace {

class ConfigTest : public testing::Test {
 protected:
  void SetUp() override {
    file = std::filesystem::temp_directory_path() / ("ponder-" + random_hex(6) + ".toml");
  }
  void TearDown() override { std::filesystem::remove(file); }

  Result<Config> load(const std::string& text) {
    std::ofstream(file) << text;
    return load_config(
        file, true,
        [this](const char* name) -> const char* {
          const auto found = environment.find(name);
          return found == environment.end() ? nullptr : found->second.c_str();
        },
        flags);
  }

  std::filesystem::path file;
  std::map<std::string, std::string> environment;
  FlagValues flags;
};

TEST_F(ConfigTest, HasDefaultsWithoutAFile) {
  const auto config =
      load_config(file, false, [](const char*) -> const char* { return nullptr; }, {});
  ASSERT_TRUE(config);
  EXPECT_EQ(config->network.port, 7663);
  EXPECT_EQ(config->http.max_body_bytes, 32u << 20);
  EXPECT_TRUE(config->origin.empty());
}

TEST_F(ConfigTest, FlagsBeatTheEnvironmentBeatsTheFile) {
  environment["PONDER_PORT"] = "2000";
  environment["PONDER_CTX"] = "4096";
  flags["port"] = {"3000"};
  const auto config = load(
      "port = 1000\nctx = 2048\nkeep_read = 7\nheader_timeout_s = 1.5\n"
      "allowed_hosts = [\"a:1\", \"b\"]\n");
  ASSERT_TRUE(config) << config.error().message;
  EXPECT_EQ(config->network.port, 3000);
  EXPECT_EQ(config->engine.ctx, 4096);
  EXPECT_EQ(config->jobs.keep_read, 7);
  EXPECT_EQ(config->http.header_timeout.count(), 1500);
  EXPECT_EQ(config->network.allowed_hosts, (std::vector<std::string>{"a:1", "b"}));
  EXPECT_EQ(config->origin.at("port"), "--port");
  EXPECT_EQ(config->origin.at("ctx"), "PONDER_CTX");
  EXPECT_EQ(config->origin.at("keep_read"), file.filename().string());
}

TEST_F(ConfigTest, ListsEveryProblemAtOnce) {
  environment["PONDER_THREADS"] = "many";
  flags["port"] = {"65536"};
  flags["listen"] = {"127.0.0.1:80", "everywhere"};
  const auto config =
      load("kep_read = 3\nctx = \"big\"\nkv = \"q3\"\nstall_s = -1\n[server]\nport = 1\n");
  ASSERT_FALSE(config);
  const std::string& message = config.error().message;
  for (const char* part :
       {"line 1: kep_read: unknown key; did you mean keep_read?", "ctx: must be a whole number",
        "kv: must be one of f32, f16, q8_0, r4", "stall_s: must be a number from",
        "server: unknown key", "PONDER_THREADS: must be a whole number",
        "--port: must be a whole number from 0 to 65535",
        "--listen: \"everywhere\" is not ADDR:PORT"})
    EXPECT_NE(message.find(part), std::string::npos) << part << "\n---\n" << message;
}

TEST_F(ConfigTest, SaysWhereTheFileIsBroken) {
  const auto config = load("port = 1\nctx = = 3\n");
  ASSERT_FALSE(config);
  EXPECT_NE(config.error().message.find("line 2"), std::string::npos) << config.error().message;
}

TEST_F(ConfigTest, WantsAFileThatWasNamed) {
  EXPECT_FALSE(load_config(file, true, [](const char*) -> const char* { return nullptr; }, {}));
}

TEST_F(ConfigTest, TellsWrongUseFromAWrongFile) {
  const auto is_usage = [](const Result<Config>& config) {
    EXPECT_FALSE(config);
    return !config && config.error().details.count(kUsage) == 1;
  };
  EXPECT_TRUE(
      is_usage(load_config(file, true, [](const char*) -> const char* { return nullptr; }, {})));
  EXPECT_FALSE(is_usage(load("port = \"x\"\n")));
  environment["PONDER_PORT"] = "x";
  EXPECT_FALSE(is_usage(load("")));
  environment.clear();
  for (const auto& [flag, value] : {std::pair{"port", "x"}, {"ctx", "-1"}, {"engine", "gpu"}}) {
    flags = {{flag, {value}}};
    EXPECT_TRUE(is_usage(load(""))) << flag;
  }
}

TEST_F(ConfigTest, PrintsWhatItReadsBack) {
  environment["PONDER_MODEL"] = "/models/a \"b\".gguf";
  flags["listen"] = {"0.0.0.0:8000"};
  const auto config = load("stall_s = 2\n");
  ASSERT_TRUE(config) << config.error().message;
  const std::string printed = print_config(*config);
  EXPECT_NE(printed.find("# PONDER_MODEL"), std::string::npos);
  environment.clear();
  flags.clear();
  const auto again = load(printed);
  ASSERT_TRUE(again) << again.error().message;
  for (const Key& key : keys())
    EXPECT_EQ(key.get(*again), key.get(*config)) << key.name;
}

TEST(Keys, EachAcceptsItsOwnDefault) {
  for (const Key& key : keys()) {
    Config config;
    EXPECT_TRUE(key.set(config, key.get(Config{}))) << key.name;
    EXPECT_FALSE(key.set(config, json::value(true))) << key.name;
    EXPECT_EQ(find_key(key.name), &key);
  }
}

TEST(Keys, AreDocumented) {
  std::ifstream stream(std::string(PONDER_SOURCE_DIR) + "/docs/config.md");
  std::stringstream text;
  text << stream.rdbuf();
  EXPECT_NE(text.str().find(markdown_table()), std::string::npos)
      << "docs/config.md must hold this table:\n"
      << markdown_table();
}

TEST(ListenAddress, IsAnIpLiteralWithAPort) {
  EXPECT_TRUE(parse_listen_address("127.0.0.1:80")->loopback);
  EXPECT_TRUE(parse_listen_address("[::1]:80")->loopback);
  EXPECT_FALSE(parse_listen_address("0.0.0.0:80")->loopback);
  EXPECT_EQ(parse_listen_address("[fe80::1]:65535")->address, "fe80::1");
  for (const char* text : {"", "80", ":80", "localhost:80", "1.2.3.4", "1.2.3.4:0", "1.2.3.4:65536",
                           "1.2.3.4:x", "::1:80", "[::1]", "1.2.3.4:80 "})
    EXPECT_FALSE(parse_listen_address(text)) << text;
}

}  // namespace
}  // namespace ponder::daemon
