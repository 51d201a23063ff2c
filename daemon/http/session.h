#pragma once
// One connection: reads requests, passes them to the handler, writes the answers. Everything runs
// on the io thread; Exchanges (which any thread may use) post to it.
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>
#include <unordered_set>

#include "daemon/http/server.h"

namespace ponder::daemon {

class Session;

/// What sessions share. Used on the io thread only, but for the references.
/// From here on what a request leaves behind in the allocator is worth giving back.
constexpr std::size_t kLargeBody = 1 << 20;

struct SessionContext {
  boost::asio::io_context& io;
  boost::asio::thread_pool& prep;
  const ServerLimits& limits;
  Admission admission = {};
  Handler handler = {};
  ErrorAnswer error_answer = {};
  std::uint64_t body_bytes = 0;  ///< held by all sessions
  int answering = 0;             ///< requests between their header and the end of their answer
  /// Gives freed memory back to the system soon; called after the answer to a body over kLargeBody.
  std::function<void()> trim_soon = {};
  bool draining = false;  ///< no further request on a connection
  std::unordered_set<Session*> sessions = {};
  int tcp_sessions = 0;  ///< of those
};

using StreamSocket = boost::asio::generic::stream_protocol::socket;

/// Starts a session on an accepted socket; it registers itself in context.sessions and lives until
/// its connection and its exchange are over.
void start_session(SessionContext& context, StreamSocket socket, Door door,
                   std::uint16_t local_port);
/// Ends it at once; its handler is told that the client is gone.
void abort_session(Session& session);
/// Ends it if it waits for a next request.
void close_if_idle(Session& session);

}  // namespace ponder::daemon
