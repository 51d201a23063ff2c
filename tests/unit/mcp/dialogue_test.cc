// Whole conversations from dialogues/: the openings that real clients send (recorded, trimmed) and
// what this server answers. '>' is a line from the client, '<' one of ours, '#' a comment.
// UPDATE_GOLDEN=1 rewrites the answers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <vector>

#include "mcp/protocol/line_writer.h"
#include "mcp/protocol/server.h"
#include "mcp/tools/registry.h"
#include "tests/unit/mcp/fake_daemon.h"

namespace ponder::mcp {
namespace {
namespace fs = std::filesystem;
const fs::path kFolder = fs::path(PONDER_SOURCE_DIR) / "tests/unit/mcp/dialogues";

/// Shortens what other tests hold: the list of tools to their names.
json::value shortened(json::value message) {
  if (!message.is_object() || !message.as_object().contains("result")) return message;
  json::object& result = message.at("result").as_object();
  if (json::value* tools = result.if_contains("tools")) {
    json::array names;
    for (const json::value& tool : tools->as_array())
      names.push_back(tool.at("name"));
    *tools = names;
  }
  return message;
}

/// The answers to `line`, once nothing is in flight.
class Conversation {
 public:
  Conversation() {
    testing::FakeJob job{testing::envelope(testing::id_of(1), "completed"), "42", "thoughts"};
    daemon_.submitted = job;
  }
  std::vector<std::string> say(const std::string& line) {
    const std::size_t before = sink_.messages().size();
    server_.handle_line(line);
    EXPECT_TRUE(server_.wait_idle(10'000));
    std::vector<std::string> answers;
    const auto all = sink_.messages();
    for (std::size_t i = before; i < all.size(); ++i)
      answers.push_back(to_line(shortened(all[i])));
    return answers;
  }

 private:
  testing::FakeClock clock_;
  testing::FakeDaemon daemon_{clock_};
  const Workspace workspace_{"/workspace", {}};
  const ToolContext context_{daemon_,   workspace_,    clock_,   "ponder",
                             "ponderd", "ponder.toml", "VERSION"};
  const ToolRegistry tools_{context_};
  testing::RecordingSink sink_;
  Server server_{{.version = "VERSION", .instructions = "INSTRUCTIONS"}, sink_, tools_};
};

class Dialogue : public ::testing::TestWithParam<std::string> {};

TEST_P(Dialogue, IsAnsweredAsRecorded) {
  const fs::path file = kFolder / (GetParam() + ".txt");
  std::ifstream in(file);
  ASSERT_TRUE(in) << file;
  Conversation conversation;
  std::string updated, line;
  std::vector<std::string> wanted, got;
  while (std::getline(in, line)) {
    if (line.starts_with("< ")) {
      wanted.push_back(line.substr(2));
      continue;
    }
    updated += line + "\n";
    if (!line.starts_with("> ")) continue;
    for (const std::string& answer : conversation.say(line.substr(2))) {
      got.push_back(answer);
      updated += "< " + answer + "\n";
    }
  }
  if (std::getenv("UPDATE_GOLDEN")) {
    std::ofstream(file) << updated;
    return;
  }
  EXPECT_EQ(got, wanted);
  EXPECT_FALSE(wanted.empty());
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : fs::directory_iterator(kFolder))
    all.push_back(entry.path().stem().string());
  std::sort(all.begin(), all.end());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Clients, Dialogue, ::testing::ValuesIn(names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace ponder::mcp
