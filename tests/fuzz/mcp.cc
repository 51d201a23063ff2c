// Input of ponder-mcp: lines of any bytes against a plain reading of them, and each line as a
// message of JSON-RPC to the server with its real tools, behind which no daemon answers.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <vector>

#include "engine/base/check.h"
#include "mcp/protocol/line_reader.h"
#include "mcp/protocol/server.h"
#include "mcp/tools/registry.h"

using namespace ponder;
using mcp::LineReader;

namespace {

constexpr std::size_t kMostBytes = 4096;

/// The lines of `input`; none: one that was too long.
std::vector<std::optional<std::string>> plain_lines(std::string_view input) {
  std::vector<std::optional<std::string>> lines;
  while (!input.empty()) {
    const std::size_t end = std::min(input.find('\n'), input.size());
    std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.size() > kMostBytes)
      lines.push_back(std::nullopt);
    else if (line.find_first_not_of(" \t\r") != line.npos)
      lines.push_back(std::string(line));
  }
  return lines;
}

class Sink final : public mcp::MessageSink {
 public:
  void send(const json::value& message) override {
    const std::lock_guard lock(mutex_);
    const auto judge = [](const json::value& one) {
      CHECK(one.is_object() && one.as_object().at("jsonrpc") == "2.0");
      const json::object& object = one.as_object();
      CHECK(object.contains("method") != (object.contains("result") || object.contains("error")));
      CHECK(!(object.contains("result") && object.contains("error")));
    };
    if (const json::array* batch = message.if_array()) {
      CHECK(!batch->empty());
      for (const json::value& one : *batch)
        judge(one);
    } else {
      judge(message);
    }
    CHECK(parse_json(to_json(message)).has_value());
  }

 private:
  std::mutex mutex_;
};

class NoDaemon final : public mcp::Daemon {
 public:
  Result<client::Response> call(std::string_view, const std::string& target, const json::value*,
                                int, client::Interrupt*) override {
    CHECK_MSG(target.starts_with('/') && target.find_first_of(" \r\n") == target.npos, target);
    return fail(ErrorCode::unreachable, "nobody is there");
  }
  Result<json::object> health(int, client::Interrupt*) override {
    return fail(ErrorCode::unreachable, "nobody is there");
  }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const int fd = ::memfd_create("input", MFD_CLOEXEC);
  CHECK(fd >= 0 && ::write(fd, data, size) == static_cast<ssize_t>(size));
  CHECK(::lseek(fd, 0, SEEK_SET) == 0);

  static NoDaemon nobody;
  static const mcp::Workspace workspace("/", {});  // names jobs and gives no files
  static const mcp::ToolContext context{nobody, workspace, system_clock(), "ponder", "ponderd",
                                        "",     "0"};
  static const mcp::ToolRegistry tools(context);
  Sink sink;
  mcp::Server server({.version = "0", .instructions = "none"}, sink, tools);

  const auto expected = plain_lines(input);
  LineReader reader(fd, kMostBytes);
  std::size_t count = 0;
  for (LineReader::Line line = reader.next(); line.kind != LineReader::Kind::end;
       line = reader.next(), ++count) {
    CHECK_MSG(count < expected.size(), "more lines than there are");
    CHECK((line.kind == LineReader::Kind::too_long) == !expected[count]);
    if (line.kind == LineReader::Kind::too_long) {
      server.handle_too_long(kMostBytes);
    } else {
      CHECK_MSG(line.text == *expected[count], "another line");
      server.handle_line(line.text);
    }
  }
  CHECK_MSG(count == expected.size(), "a line was swallowed");
  ::close(fd);
  CHECK_MSG(server.wait_idle(10'000), "a call that does not return");
  return 0;
}
