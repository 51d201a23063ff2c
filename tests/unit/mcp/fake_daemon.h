#pragma once
// A daemon without a process: jobs that the test writes, a clock that waiting moves on, and a
// record of every request. Thread-safe.
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/base/clock.h"
#include "mcp/protocol/message_sink.h"
#include "mcp/protocol/tool_table.h"
#include "mcp/tools/daemon.h"

namespace ponder::mcp::testing {

class FakeClock final : public Clock {
 public:
  std::int64_t wall_ms() const override { return now_.load(); }
  std::int64_t steady_ms() const override { return now_.load(); }
  void advance(std::int64_t ms) { now_ += ms; }

 private:
  std::atomic<std::int64_t> now_{1'000'000};
};

/// The n-th id of a test: 26 characters.
std::string id_of(int n);

/// An envelope with every field of the contract, null where nothing is known.
json::object envelope(const std::string& id, std::string_view state);

struct FakeJob {
  json::object envelope;
  std::string answer;  ///< also the partial
  std::string reasoning;
  std::string request = "What is it?";
};

struct Request {
  std::string method;
  std::string target;
  json::value body;
};

class FakeDaemon final : public Daemon {
 public:
  explicit FakeDaemon(FakeClock& clock) : clock_(clock) {}

  // What the test sets, before the calls.
  bool up = true;
  json::object health_document;
  /// A wait holds until release() or its interrupt; otherwise it runs out at once, on the clock.
  bool waits_hold = false;
  /// Applied, one a waiting request, when a wait would begin: the state the job then moves to.
  std::vector<FakeJob> moves;
  /// The next requests fail with these.
  std::vector<Error> failures;
  /// So many of the next waiting requests lose their connection.
  int lost_waits = 0;
  /// Called after each answer about one job, before the next request.
  std::function<void()> after_look = [] {};
  /// What POST /v1/jobs makes of the job with id_of(1), and its note.
  FakeJob submitted;

  void put(const FakeJob& job);
  void release() { released_.trigger(); }
  /// Blocks until `count` waits are being held.
  void wait_for_held(int count);
  std::vector<Request> requests() const;
  /// The last request whose method and target begin so; fails the test if there is none.
  Request last(std::string_view method, std::string_view target_prefix) const;

  Result<client::Response> call(std::string_view method, const std::string& target,
                                const json::value* body, int timeout_ms,
                                client::Interrupt* interrupt) override;
  Result<json::object> health(int timeout_ms, client::Interrupt* interrupt) override;

 private:
  Result<client::Response> answer(std::string_view method, const std::string& target,
                                  client::Interrupt* interrupt);
  Result<client::Response> get_job(const std::string& id, double wait_s, const std::string& seen,
                                   client::Interrupt* interrupt);
  Result<client::Response> get_result(const std::string& id, const std::string& target);

  FakeClock& clock_;
  client::Interrupt released_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, FakeJob> jobs_;
  std::vector<Request> requests_;
  int held_ = 0;
};

/// Keeps what the server sends.
class RecordingSink final : public MessageSink {
 public:
  void send(const json::value& message) override;
  std::vector<json::value> messages() const;
  /// Blocks until the answer to request `id` is there; null if none comes within 10 s.
  json::value answer_to(const json::value& id);

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<json::value> messages_;
};

/// Counts what is reported.
class FakeProgress final : public Progress {
 public:
  bool is_wanted = false;
  std::vector<std::string> reports;

  bool wanted() const override { return is_wanted; }
  int interval_ms() const override { return 1; }
  void report(std::string_view message) override;
  void wait_for_report();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
};

}  // namespace ponder::mcp::testing
