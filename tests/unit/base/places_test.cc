#include "engine/base/places.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>

namespace ponder {
namespace fs = std::filesystem;
namespace {
class PlacesTest : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"PONDER_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
      unsetenv(name);
    setenv("HOME", "/home/somebody", 1);
  }
};
}  // namespace

TEST_F(PlacesTest, FollowXdgFromHomeAlone) {
  const auto p = find_places("");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->config_file, "/home/somebody/.config/ponder/ponder.toml");
  EXPECT_EQ(p->models_dir, "/home/somebody/.local/share/ponder/models");
  EXPECT_EQ(p->database, "/home/somebody/.local/state/ponder/ponder.db");
  EXPECT_EQ(p->lock.parent_path(), p->database.parent_path());
  EXPECT_FALSE(p->explicit_home);
}

TEST_F(PlacesTest, XdgVariablesMoveThemUnlessRelative) {
  setenv("XDG_STATE_HOME", "/s", 1);
  setenv("XDG_CONFIG_HOME", "relative", 1);
  const auto p = find_places("");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->socket, "/s/ponder/ponderd.sock");
  EXPECT_EQ(p->config_file, "/home/somebody/.config/ponder/ponder.toml");
}

TEST_F(PlacesTest, HomePutsEverythingInOneDirectory) {
  for (const bool by_argument : {true, false}) {
    if (!by_argument) setenv("PONDER_HOME", "/x/y/", 1);
    const auto p = find_places(by_argument ? "/x/y" : "");
    ASSERT_TRUE(p);
    EXPECT_EQ(p->config_file, "/x/y/ponder.toml");
    EXPECT_EQ(p->models_dir, "/x/y/models");
    EXPECT_EQ(p->key_file, "/x/y/api-key");
    EXPECT_EQ(p->logs_dir, "/x/y/logs");
    EXPECT_TRUE(p->explicit_home);
  }
}

TEST_F(PlacesTest, WithoutHomeThePasswdEntryServes) {
  unsetenv("HOME");
  EXPECT_TRUE(find_places(""));
}

TEST_F(PlacesTest, PrivateDirectoriesAre0700UnderAnyUmask) {
  char base[] = "/tmp/ponder-places-XXXXXX";
  ASSERT_NE(mkdtemp(base), nullptr);
  for (const mode_t mask : {0u, 022u, 0777u}) {
    const mode_t before = umask(mask);
    const fs::path dir = fs::path(base) / std::to_string(mask) / "a" / "b";
    const auto made = make_private_dir(dir);
    umask(before);
    ASSERT_TRUE(made) << made.error().message;
    struct stat s {};
    ASSERT_EQ(stat(dir.c_str(), &s), 0);
    EXPECT_EQ(s.st_mode & 0777, 0700u);
  }
  const fs::path open = fs::path(base) / "open";
  fs::create_directory(open);
  struct stat s {};
  for (const mode_t loose : {0755u, 0775u, 0777u}) {
    chmod(open.c_str(), loose);
    EXPECT_TRUE(make_private_dir(open));
    stat(open.c_str(), &s);
    EXPECT_EQ(s.st_mode & 07777, 0700u);
  }
  for (const mode_t shared : {01700u, 01777u}) {
    chmod(open.c_str(), shared);
    const auto refused = make_private_dir(open);
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("shared"), std::string::npos);
    EXPECT_NE(refused.error().hint, "");
    stat(open.c_str(), &s);
    EXPECT_EQ(s.st_mode & 07777, shared) << "left as it is";
  }
  fs::remove_all(base);
}
}  // namespace ponder
