// Settings read again: what changes, what waits, and what a mistake does (nothing).
#include "daemon/runtime/reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "daemon/config/keys.h"

namespace ponder::daemon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

Config with(const std::string& key, const json::value& value, Config config = {}) {
  EXPECT_TRUE(find_key(key)->set(config, value)) << key;
  config.origin[key] = "ponder.toml";
  return config;
}

TEST(Reload, TakesOverWhatMayChangeAndNamesTheRest) {
  const Config running = with("port", 7000);
  const Config read = with("max_queued", 5, with("stall_s", 3.0, with("port", 8000)));
  const Reloaded out = merge_live(running, read);
  EXPECT_THAT(out.changed, ElementsAre("max_queued"));
  EXPECT_THAT(out.restarts, ElementsAre("stall_s", "port"));
  EXPECT_EQ(out.config.jobs.max_queued, 5);
  EXPECT_EQ(out.config.network.port, 7000);
  EXPECT_EQ(out.config.engine.stall_s, running.engine.stall_s);
  EXPECT_EQ(out.config.origin.at("max_queued"), "ponder.toml");
}

TEST(Reload, ALineThatWasTakenOutIsTheDefaultAgain) {
  const Reloaded out = merge_live(with("max_queued", 5), Config{});
  EXPECT_THAT(out.changed, ElementsAre("max_queued"));
  EXPECT_EQ(out.config.jobs.max_queued, Config{}.jobs.max_queued);
  EXPECT_EQ(out.config.origin.count("max_queued"), 0u);
}

TEST(Reload, TheSameSettingsChangeNothing) {
  const Reloaded out = merge_live(with("max_queued", 5), with("max_queued", 5));
  EXPECT_THAT(out.changed, IsEmpty());
  EXPECT_THAT(out.restarts, IsEmpty());
}

TEST(Reload, AMistakeKeepsWhatRuns) {
  Result<Config> next = fail(ErrorCode::bad_request, "ponder.toml line 1: unknown key");
  int applied = 0;
  int limit = 0;
  Reloader reloader(
      Config{}, [&] { return next; },
      [&](const Config& now) {
        ++applied;
        limit = now.jobs.max_queued;
      });
  EXPECT_FALSE(reloader.again());
  EXPECT_EQ(reloader.refused(), 1);
  EXPECT_EQ(applied, 0);
  next = with("max_queued", 9);
  EXPECT_TRUE(reloader.again());
  EXPECT_EQ(limit, 9);
  EXPECT_TRUE(reloader.again());  // the same once more
  EXPECT_EQ(applied, 1);
}

TEST(Reload, TheManualNamesEveryKeyThatMayChange) {
  std::ifstream stream(std::string(PONDER_SOURCE_DIR) + "/docs/config.md");
  std::stringstream text;
  text << stream.rdbuf();
  const std::string manual = text.str();
  const std::size_t begin = manual.find("`kill -HUP`"), end = manual.find("\n\n", begin);
  ASSERT_NE(begin, std::string::npos);
  const std::string paragraph = manual.substr(begin, end - begin);
  for (const Key& key : keys())
    if (key.live)
      EXPECT_THAT(paragraph, HasSubstr("`" + key.name + "`"));
    else
      EXPECT_EQ(paragraph.find("`" + key.name + "`"), std::string::npos) << key.name;
}

}  // namespace
}  // namespace ponder::daemon
