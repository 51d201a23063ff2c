#pragma once
// A small HTTP server that a test scripts byte by byte, on a Unix socket or on TCP. One thread a
// connection; everything ends with the object.
#include <condition_variable>
#include <functional>
#include <list>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine/base/json.h"
#include "engine/base/unique_fd.h"

namespace ponder::client_test {

struct SeenRequest {
  std::string method;
  std::string target;  ///< path and query as sent
  std::string head;    ///< the request line and all header lines
  std::string body;

  std::string path() const { return target.substr(0, target.find('?')); }
  /// "GET /v1/jobs"
  std::string what() const { return method + " " + path(); }
  json::object object() const;
};

/// The server's side of one connection.
class Peer {
 public:
  explicit Peer(int fd) : fd_(fd) {}
  /// False once the client has gone.
  bool send(std::string_view bytes);
  /// The same, `size` bytes at a time, each in a packet of its own.
  bool send_split(std::string_view bytes, std::size_t size);
  void answer(int status, const json::value& body, std::string_view more_headers = {});
  /// The head of an event stream; then events; send(kEndOfEvents) ends it properly.
  void begin_events();
  bool event(std::string_view id, std::string_view name, const json::value& data);
  void end_events();
  /// Returns once the client has closed its end, or the server is being destroyed.
  void wait_until_gone();

 private:
  int fd_;
};

/// An answer as bytes.
std::string http_answer(int status, std::string_view body, std::string_view more_headers = {});

class ScriptedServer {
 public:
  using Script = std::function<void(const SeenRequest&, Peer&)>;

  /// Listens on the Unix socket `path`.
  ScriptedServer(const std::string& path, Script script);
  /// Listens on 127.0.0.1, on a free port.
  explicit ScriptedServer(Script script);
  ~ScriptedServer();

  int port() const { return port_; }
  std::vector<SeenRequest> seen() const;
  /// Blocks until a request for `what` ("GET /health") has come in; false after ten seconds.
  bool wait_for(const std::string& what, int times = 1) const;
  int count(const std::string& what) const;
  /// The same for exactly this path and query.
  bool wait_for_target(const std::string& target, int times = 1) const;
  int count_of_target(const std::string& target) const;

 private:
  using Matches = std::function<bool(const SeenRequest&)>;
  bool wait_until(const Matches& matches, int times) const;
  int count_if(const Matches& matches) const;
  void accept_all();
  void serve(int fd);

  int port_ = 0;  // before the listener, which sets it
  UniqueFd listener_;
  Script script_;
  std::thread acceptor_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<SeenRequest> seen_;     // guarded by mutex_
  std::list<UniqueFd> open_;          // guarded by mutex_
  std::vector<std::thread> threads_;  // guarded by mutex_
  bool ending_ = false;               // guarded by mutex_
};

}  // namespace ponder::client_test
