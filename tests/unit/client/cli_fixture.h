#pragma once
// The real `ponder` against a daemon whose answers a test gives, one for each "METHOD /path".
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/unit/client/program_run.h"
#include "tests/unit/client/scripted_server.h"

namespace ponder::client_test {

inline constexpr const char* kJob = "01hzzzzzzzzzzzzzzzzzzzzzz1";
inline constexpr const char* kOtherJob = "01hzzzzzzzzzzzzzzzzzzzzzz2";

inline json::object envelope(const std::string& id, const std::string& state) {
  return {{"job_id", id},
          {"state", state},
          {"reason", nullptr},
          {"phase", nullptr},
          {"created_at", "2026-11-29T20:00:00.000Z"},
          {"note", nullptr}};
}

inline json::value error_body(const std::string& code, const std::string& message) {
  return json::object{{"error", {{"code", code}, {"message", message}, {"hint", "mend it"}}}};
}

class CliTest : public testing::Test {
 protected:
  using Answer = ScriptedServer::Script;

  void SetUp() override {
    server_ = std::make_unique<ScriptedServer>(
        home_ / "ponderd.sock", [this](const SeenRequest& request, Peer& peer) {
          const auto found = answers_.find(request.what());
          if (found != answers_.end()) return found->second(request, peer);
          peer.answer(404,
                      error_body("not_found", "the test gave no answer for " + request.what()));
        });
  }
  /// Before the program runs: what the daemon answers.
  void on(const std::string& what, Answer answer) { answers_[what] = std::move(answer); }
  void on(const std::string& what, int status, json::value body) {
    answers_[what] = [status, body](const SeenRequest&, Peer& peer) { peer.answer(status, body); };
  }
  static std::string job_path(const std::string& id, const std::string& rest = {}) {
    return "/v1/jobs/" + id + rest;
  }

  RunOptions ponder(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"--no-start", "--home", home_.path()});
    return {.program = PONDER_PROGRAM, .arguments = std::move(arguments)};
  }
  Ended run_ponder(std::vector<std::string> arguments) const {
    return run(ponder(std::move(arguments)));
  }
  json::object posted() const {
    for (const SeenRequest& request : server_->seen())
      if (request.what() == "POST /v1/jobs") return request.object();
    return {};
  }

  TempDir home_;
  std::map<std::string, Answer> answers_;
  std::unique_ptr<ScriptedServer> server_;
};

}  // namespace ponder::client_test
