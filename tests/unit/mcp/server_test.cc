// The protocol, against a table of tools that only the test knows.
#include "mcp/protocol/server.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <thread>

#include "tests/unit/mcp/fake_daemon.h"

namespace ponder::mcp {
namespace {
using testing::RecordingSink;

/// echo returns its arguments and the client's name; hold waits until the client gives up or the
/// test opens the gate; report reports progress `n` times; throw throws.
class TestTools final : public ToolTable {
 public:
  TestTools() {
    for (const char* name : {"echo", "hold", "report", "throw"})
      list_.push_back(json::object{{"name", name}, {"inputSchema", {{"type", "object"}}}});
  }
  const json::array& list() const override { return list_; }
  bool has(std::string_view name) const override {
    for (const json::value& row : list_)
      if (row.at("name").as_string() == name) return true;
    return false;
  }
  ToolResult call(std::string_view name, ToolCall& call) const override {
    if (name == "throw") throw std::runtime_error("secret detail");
    if (name == "hold") {
      started_.trigger();
      pollfd fds[2] = {{call.interrupt.wait_fd(), POLLIN, 0}, {gate_.wait_fd(), POLLIN, 0}};
      ::poll(fds, 2, 30'000);
    }
    if (name == "report")
      for (int i = 0; i < call.arguments.at("n").as_int64(); ++i)
        call.progress.report(std::string(150, 'p'));
    return {"text", json::object{{"arguments", call.arguments}, {"client", call.client_name}}};
  }

  mutable client::Interrupt started_, gate_;

 private:
  json::array list_;
};

class ServerTest : public ::testing::Test {
 protected:
  TestTools tools_;
  RecordingSink sink_;
  Server server_{{.version = "1.2.3",
                  .instructions = "INSTRUCTIONS",
                  .max_calls = 3,
                  .progress_interval_ms = 0},
                 sink_,
                 tools_};

  void TearDown() override { tools_.gate_.trigger(); }

  /// Sends `line` and returns the last message that is there once no call runs, or null.
  json::value exchange(const std::string& line) {
    const std::size_t before = sink_.messages().size();
    server_.handle_line(line);
    EXPECT_TRUE(server_.wait_idle(10'000));
    const auto all = sink_.messages();
    return all.size() > before ? all.back() : json::value();
  }
  int code_of(const std::string& line) {
    const json::value m = exchange(line);
    EXPECT_TRUE(m.is_object() && m.as_object().contains("error")) << line << " -> " << to_json(m);
    return m.is_object() && m.as_object().contains("error")
               ? static_cast<int>(m.at("error").at("code").as_int64())
               : 0;
  }
  static std::string request(const std::string& id, const std::string& method,
                             const std::string& params = "{}") {
    return fmt::format(R"({{"jsonrpc":"2.0","id":{},"method":"{}","params":{}}})", id, method,
                       params);
  }
  static std::string modern(const std::string& rest = "") {
    return R"({"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",)"
           R"("io.modelcontextprotocol/clientCapabilities":{},)"
           R"("io.modelcontextprotocol/clientInfo":{"name":"modern-client"}})" +
           (rest.empty() ? "" : "," + rest) + "}";
  }
  void wait_started() {
    pollfd p{tools_.started_.wait_fd(), POLLIN, 0};
    ASSERT_EQ(::poll(&p, 1, 10'000), 1);
  }
};

TEST_F(ServerTest, ParseErrorsHaveNoIdAndTheNextRequestWorks) {
  for (const std::string junk : {"{", "[1,", "\"\\", "{\"a\":1,\"a\":2}", "nul", "\xff\xfe"}) {
    const json::value m = exchange(junk);
    EXPECT_EQ(m.at("error").at("code").as_int64(), kParseError) << junk;
    EXPECT_FALSE(m.as_object().contains("id")) << junk;
  }
  EXPECT_EQ(code_of(std::string(100, '[') + std::string(100, ']')), kParseError);
  server_.handle_too_long(8 << 20);
  EXPECT_EQ(sink_.messages().back().at("error").at("code").as_int64(), kParseError);
  EXPECT_EQ(exchange(request("1", "ping")).at("result"), json::object{});
}

TEST_F(ServerTest, MalformedMessagesAreInvalidRequests) {
  EXPECT_EQ(code_of("null"), kInvalidRequest);
  EXPECT_EQ(code_of("[]"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"2.0"})"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"1.0","id":1,"method":"ping"})"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"2.0","id":1,"method":5})"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"2.0","id":null,"method":"ping"})"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"2.0","id":1.5,"method":"ping"})"), kInvalidRequest);
  EXPECT_EQ(code_of(R"({"jsonrpc":"2.0","id":1,"method":"ping","params":[1]})"), kInvalidParams);
}

TEST_F(ServerTest, IdsAreEchoedAsTheyCame) {
  for (const char* id : {"0", "1", "-5", "\"1\"", "\"\"", "9007199254740993"})
    EXPECT_EQ(to_json(exchange(request(id, "ping")).at("id")), id);
}

TEST_F(ServerTest, NotificationsAndStrayResponsesGetNoAnswer) {
  for (const char* line :
       {R"({"jsonrpc":"2.0","method":"notifications/initialized"})",
        R"({"jsonrpc":"2.0","method":"no/such/notification","params":{}})",
        R"({"jsonrpc":"2.0","method":"notifications/cancelled"})",
        R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}})",
        R"({"jsonrpc":"2.0","id":3,"result":{}})",
        R"({"jsonrpc":"2.0","id":3,"error":{"code":1,"message":"x"}})"})
    EXPECT_TRUE(exchange(line).is_null()) << line;
}

// T10, modelcontextprotocol/servers#4153: two eras of the protocol met.
TEST_F(ServerTest, InitializeEchoesAKnownVersionElseOffersTheNewest) {
  for (const std::string_view version : legacy_versions()) {
    const json::value m =
        exchange(request("1", "initialize", fmt::format(R"({{"protocolVersion":"{}"}})", version)));
    EXPECT_EQ(m.at("result").at("protocolVersion").as_string(), version);
    EXPECT_FALSE(m.at("result").as_object().contains("resultType"));
    EXPECT_EQ(m.at("result").at("instructions").as_string(), "INSTRUCTIONS");
    EXPECT_EQ(m.at("result").at("serverInfo").at("version").as_string(), "1.2.3");
  }
  for (const char* version : {"1900-01-01", "2026-07-28", ""})
    EXPECT_EQ(
        exchange(request("1", "initialize", fmt::format(R"({{"protocolVersion":"{}"}})", version)))
            .at("result")
            .at("protocolVersion")
            .as_string(),
        "2025-11-25");
  EXPECT_EQ(code_of(request("1", "initialize")), kInvalidParams);
}

TEST_F(ServerTest, ModernRequestsNeedNoHandshakeAndGetWholeResults) {
  const json::value m = exchange(request("\"d\"", "server/discover", modern()));
  const json::object& r = m.at("result").as_object();
  EXPECT_EQ(r.at("resultType").as_string(), "complete");
  EXPECT_EQ(r.at("supportedVersions"), (json::array{"2026-07-28"}));
  EXPECT_EQ(r.at("cacheScope").as_string(), "public");
  EXPECT_GT(r.at("ttlMs").as_int64(), 0);
  EXPECT_TRUE(r.at("capabilities").as_object().contains("tools"));
  EXPECT_EQ(r.at("_meta").at(kServerInfoKey).at("name").as_string(), "ponder");
  const json::value list = exchange(request("1", "tools/list", modern()));
  EXPECT_EQ(list.at("result").at("tools").as_array().size(), 4u);
  EXPECT_TRUE(list.at("result").as_object().contains("ttlMs"));
  const json::value call =
      exchange(request("2", "tools/call", modern(R"("name":"echo","arguments":{"a":1})")));
  EXPECT_EQ(call.at("result").at("resultType").as_string(), "complete");
  EXPECT_EQ(call.at("result").at("structuredContent").at("client").as_string(), "modern-client");
  EXPECT_TRUE(call.at("result").as_object().contains("_meta"));
}

TEST_F(ServerTest, ModernVersionsAndCapabilitiesAreChecked) {
  const json::value m = exchange(request(
      "1", "tools/list", R"({"_meta":{"io.modelcontextprotocol/protocolVersion":"2027-01-01"}})"));
  EXPECT_EQ(m.at("error").at("code").as_int64(), kUnsupportedProtocolVersion);
  EXPECT_EQ(m.at("error").at("data").at("supported"), (json::array{"2026-07-28"}));
  EXPECT_EQ(m.at("error").at("data").at("requested").as_string(), "2027-01-01");
  EXPECT_EQ(
      code_of(request("1", "tools/list",
                      R"({"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}})")),
      kInvalidParams);
  EXPECT_EQ(code_of(request("1", "tools/list",
                            R"({"_meta":{"io.modelcontextprotocol/protocolVersion":7}})")),
            kInvalidParams);
  EXPECT_EQ(code_of(request("1", "server/discover")), kInvalidParams);
  for (const char* gone : {"initialize", "ping", "logging/setLevel", "resources/subscribe",
                           "tasks/list", "tasks/result", "nothing"})
    EXPECT_EQ(code_of(request("1", gone, modern())), kMethodNotFound) << gone;
}

TEST_F(ServerTest, LegacyKnowsPingAndNothingItDoesNotOffer) {
  EXPECT_EQ(exchange(request("1", "ping")).at("result"), json::object{});
  for (const char* method : {"prompts/list", "resources/list", "logging/setLevel", "nothing", ""})
    EXPECT_EQ(code_of(request("1", method)), kMethodNotFound) << method;
}

TEST_F(ServerTest, ToolsListTakesNoCursorButTheEmptyOne) {
  EXPECT_EQ(exchange(request("1", "tools/list", R"({"cursor":""})"))
                .at("result")
                .at("tools")
                .as_array()
                .size(),
            4u);
  EXPECT_FALSE(exchange(request("1", "tools/list")).at("result").as_object().contains("ttlMs"));
  EXPECT_EQ(code_of(request("1", "tools/list", R"({"cursor":"abc"})")), kInvalidParams);
  EXPECT_EQ(code_of(request("1", "tools/list", R"({"cursor":5})")), kInvalidParams);
}

TEST_F(ServerTest, ToolCallsAreCheckedAndAnswered) {
  EXPECT_EQ(code_of(request("1", "tools/call")), kInvalidParams);
  EXPECT_EQ(code_of(request("1", "tools/call", R"({"name":"nothing"})")), kInvalidParams);
  EXPECT_EQ(code_of(request("1", "tools/call", R"({"name":"echo","arguments":[]})")),
            kInvalidParams);
  exchange(request("0", "initialize",
                   R"({"protocolVersion":"2024-11-05","clientInfo":{"name":"cline"}})"));
  const json::value m = exchange(request("0", "tools/call", R"({"name":"echo"})"));
  EXPECT_EQ(m.at("result").at("content"),
            (json::array{json::object{{"type", "text"}, {"text", "text"}}}));
  EXPECT_EQ(m.at("result").at("structuredContent").at("client").as_string(), "cline");
  EXPECT_FALSE(m.at("result").as_object().contains("resultType"));
}

TEST_F(ServerTest, AFaultInAToolIsAnInternalErrorWithoutDetails) {
  const json::value m = exchange(request("1", "tools/call", R"({"name":"throw"})"));
  EXPECT_EQ(m.at("error").at("code").as_int64(), kInternalError);
  EXPECT_EQ(to_json(m).find("secret"), std::string::npos);
}

// T6, mlorentedev/hive#63: one call that waited starved the server.
TEST_F(ServerTest, AWaitHoldsUpNobodyElse) {
  server_.handle_line(request("1", "tools/call", R"({"name":"hold"})"));
  wait_started();
  for (int i = 0; i < 30; ++i) {
    const std::string id = std::to_string(100 + i);
    server_.handle_line(request(id, "ping"));
    EXPECT_TRUE(sink_.answer_to(100 + i).as_object().contains("result"));
    server_.handle_line(request("\"t" + id + "\"", "tools/list"));
    server_.handle_line(request("\"c" + id + "\"", "tools/call", R"({"name":"echo"})"));
    EXPECT_TRUE(sink_.answer_to(json::value("c" + id)).as_object().contains("result"));
  }
  for (const json::value& m : sink_.messages())
    EXPECT_NE(to_json(m.at("id")), "1");
  tools_.gate_.trigger();
  EXPECT_TRUE(sink_.answer_to(1).as_object().contains("result"));
}

// T7, mcp-gsuite#21, python-sdk#2507: a cancelled call crashed the server or was never let go.
TEST_F(ServerTest, CancelledEndsTheWaitAndNothingIsSent) {
  server_.handle_line(request("1", "tools/call", R"({"name":"hold"})"));
  wait_started();
  server_.handle_line(
      R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"1"}})");
  EXPECT_FALSE(server_.wait_idle(20)) << "the string \"1\" is another id";
  for (int twice = 0; twice < 2; ++twice)
    server_.handle_line(
        R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"x"}})");
  EXPECT_TRUE(server_.wait_idle(10'000));
  EXPECT_TRUE(sink_.messages().empty());
  EXPECT_TRUE(
      exchange(request("1", "tools/call", R"({"name":"echo"})")).as_object().contains("result"))
      << "the id may be used again";
}

TEST_F(ServerTest, AnIdInFlightIsNotTakenTwice) {
  server_.handle_line(request("1", "tools/call", R"({"name":"hold"})"));
  server_.handle_line(request("1", "tools/call", R"({"name":"echo"})"));
  const json::value refusal = sink_.messages().at(0);
  EXPECT_EQ(refusal.at("error").at("code").as_int64(), kInvalidRequest);
  EXPECT_FALSE(refusal.as_object().contains("id"));
}

TEST_F(ServerTest, TooManyCallsAreAToolError) {
  for (const char* id : {"1", "2", "3"})
    server_.handle_line(request(id, "tools/call", R"({"name":"hold"})"));
  server_.handle_line(request("4", "tools/call", R"({"name":"echo"})"));
  const json::value m = sink_.answer_to(4);
  EXPECT_TRUE(m.at("result").at("isError").as_bool());
  EXPECT_NE(to_json(m).find("Too many waits"), std::string::npos);
  server_.handle_line(request("5", "ping"));
  EXPECT_TRUE(sink_.answer_to(5).as_object().contains("result"));
}

// T5, vfarcic/dot-ai#708, opencode#24965: progress that nobody asked for, too often, or after the
// answer.
TEST_F(ServerTest, ProgressOnlyWithATokenRisingAndBeforeTheAnswer) {
  exchange(request("1", "tools/call", R"({"name":"report","arguments":{"n":3}})"));
  EXPECT_EQ(sink_.messages().size(), 1u);
  exchange(request("2", "tools/call",
                   R"({"name":"report","arguments":{"n":3},"_meta":{"progressToken":0}})"));
  const auto all = sink_.messages();
  ASSERT_EQ(all.size(), 5u);
  for (int i = 0; i < 3; ++i) {
    const json::value& m = all.at(static_cast<std::size_t>(i) + 1);
    EXPECT_EQ(m.at("method").as_string(), "notifications/progress");
    EXPECT_EQ(m.at("params").at("progressToken").as_int64(), 0);
    EXPECT_EQ(m.at("params").at("progress").as_int64(), i + 1);
    EXPECT_EQ(m.at("params").at("message").as_string().size(), 100u);
  }
  EXPECT_TRUE(all.back().as_object().contains("result"));
}

TEST_F(ServerTest, ProgressIsNotSentMoreOftenThanAgreed) {
  Server slow({.version = "1", .instructions = "", .progress_interval_ms = 60'000}, sink_, tools_);
  slow.handle_line(
      request("2", "tools/call",
              R"({"name":"report","arguments":{"n":50},"_meta":{"progressToken":"p"}})"));
  ASSERT_TRUE(slow.wait_idle(10'000));
  EXPECT_EQ(sink_.messages().size(), 1u);
}

TEST_F(ServerTest, BatchesBelongToOneVersionOnly) {
  const std::string batch = "[" + request("1", "ping") + "," +
                            request("2", "tools/call", R"({"name":"echo"})") +
                            R"(,{"jsonrpc":"2.0","method":"notifications/initialized"},7])";
  EXPECT_EQ(code_of(batch), kInvalidRequest);
  for (const char* version : {"2025-11-25", "2025-06-18", "2024-11-05"}) {
    exchange(request("0", "initialize", fmt::format(R"({{"protocolVersion":"{}"}})", version)));
    EXPECT_EQ(code_of(batch), kInvalidRequest) << version;
  }
  exchange(request("0", "initialize", R"({"protocolVersion":"2025-03-26"})"));
  const json::value answers = exchange(batch);
  ASSERT_TRUE(answers.is_array());
  EXPECT_EQ(answers.as_array().size(), 3u)
      << "two results and one error, none for the notification";
  EXPECT_EQ(code_of("[]"), kInvalidRequest);
  EXPECT_TRUE(exchange(R"([{"jsonrpc":"2.0","method":"notifications/initialized"}])").is_null());
}

TEST_F(ServerTest, ACancelledCallDoesNotHoldUpItsBatch) {
  exchange(request("0", "initialize", R"({"protocolVersion":"2025-03-26"})"));
  server_.handle_line("[" + request("1", "ping") + "," +
                      request("2", "tools/call", R"({"name":"hold"})") + "]");
  wait_started();
  const json::value answers =
      exchange(R"({"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":2}})");
  ASSERT_TRUE(answers.is_array());
  EXPECT_EQ(answers.as_array().size(), 1u);
}

}  // namespace
}  // namespace ponder::mcp
