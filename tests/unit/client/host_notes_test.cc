// What `ponder doctor` says of a machine that ends daemons.
#include "clients/cli/host_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/client/program_run.h"

namespace ponder::cli {
namespace {
namespace fs = std::filesystem;
using testing::HasSubstr;

class HostNotesTest : public testing::Test {
 protected:
  HostNotesTest() {
    files_.kernel_release = dir_ / "osrelease";
    files_.systemd = dir_ / "systemd";
    files_.linger = dir_ / "linger";
    files_.system_units = {dir_ / "ponder.service"};
    files_.user_unit = dir_ / "user.service";
    files_.user = "me";
    fs::create_directories(files_.linger);
    client_test::write_file(files_.kernel_release, "6.1.0-28-amd64\n");
  }
  client_test::TempDir dir_;
  HostFiles files_;
};

TEST_F(HostNotesTest, AnOrdinaryMachineHasNone) {
  EXPECT_TRUE(host_notes(files_).empty());
}

// 7a 11, microsoft/WSL#9667: the distribution stopped when its last terminal closed.
TEST_F(HostNotesTest, WslIsToldWithWhatKeepsItUp) {
  client_test::write_file(files_.kernel_release, "5.15.153.1-microsoft-standard-WSL2\n");
  files_.wsl_distribution = "Debian";
  const auto notes = host_notes(files_);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0].name, "wsl");
  EXPECT_THAT(notes[0].message, HasSubstr("last terminal"));
  EXPECT_THAT(notes[0].hint, HasSubstr("wsl.exe -d Debian --exec sleep infinity"));
}

TEST_F(HostNotesTest, MissingLingeringIsToldWhereItMatters) {
  fs::create_directory(files_.systemd);
  ASSERT_EQ(host_notes(files_).size(), 1u);
  EXPECT_EQ(host_notes(files_)[0].hint, "loginctl enable-linger me");
  client_test::write_file(files_.user_unit, "[Service]\n");
  EXPECT_THAT(host_notes(files_)[0].message, HasSubstr("ends at logout"));
  client_test::write_file((files_.linger / "me").string(), "");
  EXPECT_TRUE(host_notes(files_).empty());
  fs::remove(files_.linger / "me");
  client_test::write_file(files_.system_units[0], "[Service]\n");
  EXPECT_TRUE(host_notes(files_).empty()) << "a system service does not end at logout";
  fs::remove(files_.system_units[0]);
  files_.user = "root";
  EXPECT_TRUE(host_notes(files_).empty());
}
}  // namespace
}  // namespace ponder::cli
