#pragma once
// The six tools with a fake daemon and a fake clock under them.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "engine/base/ids.h"
#include "engine/base/utf8.h"
#include "mcp/tools/registry.h"
#include "mcp/tools/report.h"
#include "tests/unit/mcp/fake_daemon.h"

namespace ponder::mcp::testing {
namespace fs = std::filesystem;

class ToolsTest : public ::testing::Test {
 protected:
  fs::path dir_ = fs::temp_directory_path() / ("ponder-tools-" + random_hex(6));
  FakeClock clock_;
  FakeDaemon daemon_{clock_};
  Workspace workspace_{dir_, {}};
  ToolContext context_{
      daemon_,          workspace_, clock_, "/bin/ponder --home /h", "/bin/ponderd --home /h",
      "/h/ponder.toml", "1.2.3"};
  ToolRegistry tools_{context_};
  FakeProgress progress_;
  client::Interrupt interrupt_;
  std::string client_ = "some-client";

  void SetUp() override { fs::create_directories(dir_); }
  void TearDown() override { fs::remove_all(dir_); }

  ToolResult call(std::string_view name, json::object arguments) {
    ToolCall c{std::move(arguments), client_, progress_, interrupt_};
    ToolResult result = tools_.call(name, c);
    if (result.is_error) {
      EXPECT_LE(count_code_points(result.text), 8'000);
      EXPECT_TRUE(result.structured.empty());
    } else {
      EXPECT_FALSE(result.structured.empty());
      // The last line is the status line, the one before it "---".
      const std::size_t last = result.text.rfind('\n');
      EXPECT_NE(last, std::string::npos);
      EXPECT_THAT(result.text.substr(0, last), ::testing::EndsWith("---")) << result.text;
    }
    return result;
  }
  ToolResult failing(std::string_view name, json::object arguments) {
    ToolResult result = call(name, std::move(arguments));
    EXPECT_TRUE(result.is_error) << name << ": " << result.text;
    return result;
  }
  ToolResult good(std::string_view name, json::object arguments) {
    ToolResult result = call(name, std::move(arguments));
    EXPECT_FALSE(result.is_error) << name << ": " << result.text;
    return result;
  }
  static FakeJob job(int n, std::string_view state, std::string answer = "") {
    return {envelope(id_of(n), state), std::move(answer), "thoughts"};
  }
  static FakeJob cut(int n, std::string_view state, std::string_view reason, std::string partial) {
    FakeJob j = job(n, state, std::move(partial));
    j.envelope["reason"] = reason;
    return j;
  }
  static std::string text(const json::object& o, std::string_view key) { return text_of(o, key); }
};

}  // namespace ponder::mcp::testing
