// Which files are read and written, and which are refused.
#include "mcp/tools/workspace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>

#include "engine/base/ids.h"

namespace ponder::mcp {
namespace {
namespace fs = std::filesystem;
using ::testing::HasSubstr;

class WorkspaceTest : public ::testing::Test {
 protected:
  fs::path base_ = fs::temp_directory_path() / ("ponder-ws-" + random_hex(6));
  fs::path dir_ = base_ / "project";

  void SetUp() override {
    fs::create_directories(dir_ / "sub");
    fs::create_directories(base_ / "project-evil");
    put(dir_ / "a.txt", "alpha");
    put(dir_ / "sub/b.txt", "b\xC3\xA9ta");
    put(base_ / "outside.txt", "secret");
    put(base_ / "project-evil/x.txt", "secret");
  }
  void TearDown() override { fs::remove_all(base_); }

  static void put(const fs::path& file, const std::string& text) {
    std::ofstream(file, std::ios::binary) << text;
  }
  static std::string get(const fs::path& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  std::string refusal(const std::string& path) const {
    const auto files = Workspace(dir_, {}).read_files({path});
    EXPECT_FALSE(files) << path << " was read";
    if (files) return {};
    EXPECT_EQ(files.error().code, ErrorCode::bad_request);
    return files.error().message;
  }
};

TEST_F(WorkspaceTest, ReadsRelativeAndAbsoluteFilesBelowTheWorkspace) {
  const auto files = Workspace(dir_, {}).read_files(
      {"a.txt", "sub/b.txt", "./sub/../a.txt", (dir_ / "a.txt").string()});
  ASSERT_TRUE(files) << files.error().message;
  EXPECT_EQ(files->at(0).text, "alpha");
  EXPECT_EQ(files->at(1).text, "b\xC3\xA9ta");
  EXPECT_EQ(files->at(1).name, "sub/b.txt");
  EXPECT_EQ(files->at(2).text, "alpha");
  EXPECT_EQ(files->at(3).text, "alpha");
}

// T39, pal-mcp-server#293, DesktopCommanderMCP#403: `files` read anything.
TEST_F(WorkspaceTest, RefusesWhatLiesOutside) {
  for (const std::string path : {"../outside.txt", "sub/../../outside.txt", "/etc/passwd",
                                 "/proc/self/environ", "../project-evil/x.txt"})
    EXPECT_THAT(refusal(path), HasSubstr("lies outside")) << path;
  EXPECT_THAT(refusal((base_ / "project-evil/x.txt").string()), HasSubstr("lies outside"));
  EXPECT_THAT(refusal(std::string("a.txt\0x", 7)), HasSubstr("not a path"));
  EXPECT_THAT(refusal(""), HasSubstr("not a path"));
}

TEST_F(WorkspaceTest, FollowsNoSymlinkAtAnyPlace) {
  fs::create_symlink(base_ / "outside.txt", dir_ / "leaf");
  fs::create_symlink(dir_ / "a.txt", dir_ / "inner");
  fs::create_directory_symlink(base_ / "project-evil", dir_ / "way");
  fs::create_directory_symlink("sub", dir_ / "near");
  for (const char* path : {"leaf", "inner", "way/x.txt", "near/b.txt"})
    EXPECT_THAT(refusal(path), HasSubstr("symlink")) << path;
}

TEST_F(WorkspaceTest, ReadsOnlyRegularFiles) {
  EXPECT_THAT(refusal("sub"), HasSubstr("directory"));
  EXPECT_THAT(refusal("."), HasSubstr("it is a directory"));
  ASSERT_EQ(::mkfifo((dir_ / "pipe").c_str(), 0600), 0);
  EXPECT_THAT(refusal("pipe"), HasSubstr("not a regular file"));
  EXPECT_THAT(refusal("none.txt"), HasSubstr("No such file"));
}

TEST_F(WorkspaceTest, TheWorkspaceItselfIsADirectoryAndNotOutside) {
  const Workspace workspace(dir_, {});
  for (const std::string& path :
       {std::string("."), std::string("./"), std::string("sub/.."), dir_.string()})
    EXPECT_THAT(workspace.read_files({path}).error().message, HasSubstr("it is a directory"))
        << path;
}

TEST_F(WorkspaceTest, ReadsOnlyUtf8OfBoundedSize) {
  put(dir_ / "latin1", "caf\xE9");
  EXPECT_THAT(refusal("latin1"), HasSubstr("UTF-8"));
  put(dir_ / "most", std::string(kFileBytesMax, 'x'));
  put(dir_ / "over", std::string(kFileBytesMax + 1, 'x'));
  EXPECT_TRUE(Workspace(dir_, {}).read_files({"most"}));
  EXPECT_THAT(refusal("over"), HasSubstr("larger than 1048576 bytes"));
  const Workspace workspace(dir_, {});
  EXPECT_TRUE(workspace.read_files(std::vector<std::string>(8, "most")));
  const auto nine = workspace.read_files(std::vector<std::string>(9, "most"));
  ASSERT_FALSE(nine);
  EXPECT_THAT(nine.error().message, HasSubstr("together"));
}

TEST_F(WorkspaceTest, FurtherRootsAreTakenToo) {
  const Workspace workspace(dir_, {base_ / "project-evil/"});
  EXPECT_TRUE(workspace.read_files({(base_ / "project-evil/x.txt").string()}));
  EXPECT_FALSE(workspace.read_files({(base_ / "outside.txt").string()}));
}

TEST_F(WorkspaceTest, AWorkspaceReachedThroughASymlinkWorksUnderBothNames) {
  fs::create_directory_symlink(dir_, base_ / "alias");
  const Workspace workspace(base_ / "alias", {});
  EXPECT_TRUE(workspace.read_files({"a.txt"}));
  EXPECT_TRUE(workspace.read_files({(base_ / "alias/a.txt").string()}));
  EXPECT_TRUE(workspace.read_files({(dir_ / "a.txt").string()}));
}

TEST_F(WorkspaceTest, TheRootDirectoryIsNoWorkspaceForFiles) {
  const auto files = Workspace("/", {}).read_files({(dir_ / "a.txt").string()});
  ASSERT_FALSE(files);
  EXPECT_THAT(files.error().message, HasSubstr("--root"));
  EXPECT_TRUE(Workspace("/", {dir_}).read_files({(dir_ / "a.txt").string()}));
}

TEST_F(WorkspaceTest, WritesInOneStepAndReplacesOnlyTheBeginningOfTheSameText) {
  const Workspace workspace(dir_, {});
  EXPECT_EQ(workspace.write_file("new.md", "one").value(), (dir_ / "new.md").string());
  EXPECT_EQ(workspace.write_file("sub/new", "two").value(), (dir_ / "sub/new").string());
  EXPECT_EQ(get(dir_ / "new.md"), "one");
  EXPECT_EQ(get(dir_ / "sub/new"), "two");
  EXPECT_TRUE(workspace.write_file("new.md", "one"));
  EXPECT_TRUE(workspace.write_file("new.md", "one and more"));
  for (const char* other : {"one", "One and more than that", ""}) {
    const auto refused = workspace.write_file("new.md", other);
    ASSERT_FALSE(refused) << other;
    EXPECT_THAT(refused.error().message, HasSubstr("another name"));
  }
  EXPECT_EQ(get(dir_ / "new.md"), "one and more");

  fs::create_symlink(base_ / "outside.txt", dir_ / "link");
  fs::create_directory_symlink(base_ / "project-evil", dir_ / "way");
  for (const char* path :
       {"sub", "link", "way/x.txt", "../outside.txt", "missing/x", "/etc/ponder-x"})
    EXPECT_FALSE(workspace.write_file(path, "bad")) << path;
  EXPECT_EQ(get(base_ / "outside.txt"), "secret");
  EXPECT_EQ(get(base_ / "project-evil/x.txt"), "secret");
  for (const auto& entry : fs::recursive_directory_iterator(base_))
    EXPECT_EQ(entry.path().string().find(".part"), std::string::npos) << entry.path();
}

}  // namespace
}  // namespace ponder::mcp
